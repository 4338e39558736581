"""The gate: watermarks are the minimum and never go back, idleness comes and goes, barriers align."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.exchange.channel import LocalChannel
from onceflow.runtime.exchange.input_gate import ChannelWatermarks, InputGate
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Records,
    Watermark,
)


def rows(*values: int) -> Records:
    return Records(pa.record_batch({"x": pa.array(values, pa.int64())}), np.array(values, np.int64))


class Gate:
    """A gate over channels that the test fills."""

    def __init__(self, channels: int, is_aligned: bool = True) -> None:
        self.channels = [LocalChannel() for _ in range(channels)]
        self.gate = InputGate(self.channels, Alignment(channels, is_aligned))

    def send(self, channel: int, *elements: Element) -> None:
        for element in elements:
            self.channels[channel].send(element)

    def take(self) -> list[Element]:
        """Everything that the gate gives now."""
        taken = []
        while (element := self.gate.receive()) is not None:
            taken.append(element)
        return taken


def values(elements: Sequence[Element]) -> list[object]:
    """Records as their first column, control elements as they are."""
    return [e.batch.column(0).to_pylist() if isinstance(e, Records) else e for e in elements]


def test_the_watermark_is_the_lowest_of_all_channels() -> None:
    gate = Gate(3)
    gate.send(0, Watermark(50))
    gate.send(1, Watermark(20))
    assert gate.take() == []
    gate.send(2, Watermark(30))
    assert gate.take() == [Watermark(20)]
    gate.send(1, Watermark(40))
    assert gate.take() == [Watermark(30)]


def test_a_watermark_that_goes_back_is_ignored() -> None:
    gate = Gate(1)
    gate.send(0, Watermark(50), Watermark(20), Watermark(60))
    assert gate.take() == [Watermark(50), Watermark(60)]


def test_an_idle_channel_is_left_out_and_comes_back_without_the_watermark_going_back() -> None:
    gate = Gate(2)
    gate.send(0, Watermark(10))
    gate.send(1, Watermark(40), Idle())
    assert gate.take() == [Watermark(10)]
    gate.send(0, Watermark(90))
    assert gate.take() == [Watermark(90)]
    gate.send(1, Watermark(50))
    assert gate.take() == []
    gate.send(0, Watermark(95))
    assert gate.take() == []
    gate.send(1, Watermark(92))
    assert gate.take() == [Watermark(92)]


def test_a_gate_is_idle_when_all_channels_are_and_says_so_once() -> None:
    gate = Gate(2)
    gate.send(0, Watermark(10), Idle())
    gate.send(1, Watermark(10), Idle(), Idle())
    assert gate.take() == [Watermark(10), Idle()]
    gate.send(1, Watermark(10))
    assert gate.take() == [Watermark(10)], "the same watermark again says that the gate counts again"


def test_an_ended_channel_holds_nothing_back() -> None:
    gate = Gate(2)
    gate.send(0, Watermark(10))
    gate.send(1, Watermark(5), Watermark(WATERMARK_MAX_MS), EndOfInput())
    assert gate.take() == [Watermark(5), Watermark(10)]
    gate.send(0, Watermark(20), Watermark(WATERMARK_MAX_MS), EndOfInput())
    assert gate.take() == [Watermark(20), Watermark(WATERMARK_MAX_MS), EndOfInput()]


def test_regression_an_idle_channel_without_any_watermark_does_not_hold_the_others_when_all_are_idle() -> (
    None
):
    gate = Gate(2)
    gate.send(0, Watermark(10), Idle())
    assert gate.take() == []
    gate.send(1, Idle())
    assert gate.take() == [Watermark(10), Idle()]
    gate.send(1, Watermark(20))
    assert gate.take() == [Watermark(20)]


@pytest.mark.parametrize("is_idle_first", [True, False])
def test_regression_the_end_of_one_channel_ends_no_event_time_while_another_is_only_idle(
    is_idle_first: bool,
) -> None:
    """A bounded input in union with one that is idle: when that one comes back its records were late."""
    gate = Gate(2)
    gate.send(0, Watermark(10))
    gate.send(1, Watermark(10))
    gate.take()
    if is_idle_first:
        gate.send(0, Idle())
        gate.take()
    gate.send(1, Watermark(WATERMARK_MAX_MS), EndOfInput())
    gate.send(0, Idle())
    assert gate.take() == [Idle()]
    gate.send(0, Watermark(10), rows(11))
    assert values(gate.take()) == [Watermark(10), [11]]
    gate.send(0, EndOfInput())
    assert gate.take() == [EndOfInput()]


def test_a_channel_that_delivered_the_barrier_is_not_read_until_all_have() -> None:
    gate = Gate(2)
    gate.send(0, rows(1), Barrier(7), rows(2))
    gate.send(1, rows(10), rows(11))
    assert sorted(map(str, values(gate.take()))) == ["[10]", "[11]", "[1]"]
    gate.send(1, rows(12), Barrier(7), rows(13))
    taken = values(gate.take())
    assert taken[:2] == [[12], Barrier(7)]
    assert sorted(map(str, taken[2:])) == ["[13]", "[2]"]


def test_without_alignment_nothing_waits() -> None:
    gate = Gate(2, is_aligned=False)
    gate.send(0, Barrier(7), rows(2))
    gate.send(1, rows(10))
    assert sorted(map(str, values(gate.take()))) == ["[10]", "[2]"]
    gate.send(1, Barrier(7))
    assert gate.take() == [Barrier(7)]


def test_an_aborted_checkpoint_unblocks_its_channels() -> None:
    gate = Gate(2)
    gate.send(0, Barrier(7), rows(2))
    assert gate.take() == []
    gate.gate.abort(7)
    assert values(gate.take()) == [[2]]
    gate.send(1, Barrier(7), rows(3))
    assert values(gate.take()) == [[3]], "the late barrier of an aborted checkpoint means nothing"


def test_the_last_barrier_is_passed_on_as_the_last() -> None:
    gate = Gate(1)
    gate.send(0, Barrier(3, is_last=True))
    assert gate.take() == [Barrier(3, is_last=True)]


MOVES = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.integers(-100, 100), st.sampled_from(["idle", "end"]))),
    max_size=40,
)


@given(MOVES)
def test_whatever_channels_do_the_watermark_is_their_minimum_and_never_goes_back(
    moves: list[tuple[int, int | str]],
) -> None:
    """Against a plain model: a channel's promise is its highest watermark; an idle one promises nothing,
    unless all are."""
    merged = ChannelWatermarks(3)
    promised, idle, ended = [WATERMARK_MIN_MS] * 3, [False] * 3, [False] * 3
    current, is_idle, has_ended = WATERMARK_MIN_MS, False, False
    for channel, move in moves:
        if ended[channel]:
            continue
        said: Element | None
        if move == "end":
            ended[channel], idle[channel], promised[channel] = True, False, WATERMARK_MAX_MS
            said = merged.end(channel)
        elif move == "idle":
            idle[channel] = True
            said = merged.set_idle(channel)
        else:
            assert isinstance(move, int)
            idle[channel], promised[channel] = False, max(promised[channel], move)
            said = merged.advance(channel, move)
        match said:
            case Watermark(time_ms):
                counting = [not (i or e) for i, e in zip(idle, ended, strict=True)]
                if not any(counting):  # all are idle: who ever promised something decides
                    counting = [i and p > WATERMARK_MIN_MS for i, p in zip(idle, promised, strict=True)]
                if not any(counting):
                    counting = ended
                lowest = min(p for p, c in zip(promised, counting, strict=True) if c)
                assert time_ms == max(current, lowest), "no more than all have promised, and never back"
                current, is_idle = time_ms, False
            case Idle():
                assert not is_idle
                is_idle = True
            case EndOfInput():
                has_ended = True
        if merged.settle() is not None:
            assert not is_idle
            is_idle = True
        assert has_ended == all(ended)
        if has_ended:
            return
        counted = [p for p, i, e in zip(promised, idle, ended, strict=True) if not i and not e]
        assert is_idle == (not counted)
        if counted:
            assert current >= min(counted), "as far as the promises allow"
