"""How much may wait in a channel follows what its receiver takes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.exchange.channel import LocalChannel
from onceflow.runtime.exchange.channel_bound import BYTES_MIN, FIRST_BYTES, ChannelBound
from onceflow.runtime.records import Records, Watermark

MOST = 1 << 20


def taken(bound: ChannelBound, ms_each: float, count: int = 200, size: int = 100, left: int = 1) -> int:
    """The bound after so many elements were taken at this pace."""
    for _ in range(count):
        taken.now_ms += ms_each
        bound.on_taken(size, left, taken.now_ms)
    return bound.bytes


taken.now_ms = 0.0


def test_what_waits_is_what_the_receiver_takes_in_the_time() -> None:
    bound = ChannelBound(MOST, goal_ms=1_000)
    assert bound.bytes == FIRST_BYTES
    assert taken(bound, ms_each=10, count=2_000) == pytest.approx(10_000, rel=0.1), "100 bytes in 10 ms"
    assert not bound.is_most


def test_a_receiver_that_is_fast_gets_the_most_at_once() -> None:
    bound = ChannelBound(MOST, goal_ms=1_000)
    taken(bound, ms_each=100)
    assert taken(bound, ms_each=0.1, count=600, size=1_000) == MOST
    assert bound.is_most


def test_the_bound_goes_down_by_halves_and_not_for_ever() -> None:
    bound = ChannelBound(MOST, goal_ms=1_000)
    assert taken(bound, ms_each=60, count=2, size=6) > FIRST_BYTES // 2, (
        "one slow element is not a slow receiver"
    )
    assert taken(bound, ms_each=60, size=1) == BYTES_MIN


def test_an_idle_channel_says_nothing_of_its_receiver() -> None:
    bound = ChannelBound(MOST, goal_ms=1_000)
    assert taken(bound, ms_each=5_000, left=0) == FIRST_BYTES


def test_a_channel_that_each_element_fills_says_how_fast_it_is() -> None:
    bound = ChannelBound(MOST, goal_ms=1_000)
    assert taken(bound, ms_each=10, size=FIRST_BYTES, left=0) == MOST, (
        "nothing was left, but more had no room"
    )


def test_a_sender_of_half_a_bound_hears_that_its_receiver_is_fast() -> None:
    """A sender makes such batches while a channel counts as slow: it is never full, and nothing is left."""
    clock = ManualClock()
    channel = LocalChannel(MOST, clock, goal_ms=1_000)
    batch = Records(pa.record_batch({"n": pa.array(range(FIRST_BYTES // 16), pa.int64())}))
    for _ in range(100):
        channel.send(batch)
        assert channel.receive() is batch
        clock.advance(1)
        assert channel.receive() is None
        clock.advance(1_000)  # and nothing comes for a while
    assert not channel.is_slow


def test_who_begins_fast_is_fast_after_a_few_batches() -> None:
    """The start of a job is not spent on small batches: nine of them, not ninety."""
    bound = ChannelBound(MOST, goal_ms=1_000)
    taken(bound, ms_each=0.6, count=11, size=FIRST_BYTES // 2)
    assert bound.is_most


def test_who_begins_neither_fast_nor_slow_is_counted_for_longer() -> None:
    bound = ChannelBound(MOST, goal_ms=1_000)
    assert taken(bound, ms_each=6, count=3, size=600) == FIRST_BYTES
    assert taken(bound, ms_each=6, count=8, size=600) == pytest.approx(100_000, rel=0.1)


def test_without_a_goal_the_bound_is_the_most() -> None:
    bound = ChannelBound(MOST, goal_ms=None)
    assert taken(bound, ms_each=1_000) == MOST
    assert bound.is_most


def test_a_channel_gives_its_sender_the_room_that_its_receiver_needs() -> None:
    clock = ManualClock()
    channel = LocalChannel(MOST, clock, goal_ms=1_000)
    for _ in range(200):
        while channel.has_room:
            channel.send(Watermark(1))
        clock.advance(64)
        channel.receive()
    assert channel.is_slow
    assert channel.bound_bytes == pytest.approx(1_000, rel=0.1), "64 bytes in 64 ms, but the least is 1 KiB"
