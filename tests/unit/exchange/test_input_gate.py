"""The gate: watermarks are the minimum and never go back, idleness comes and goes, barriers align."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.exchange.channel import LocalChannel
from onceflow.runtime.exchange.channel_watermarks import ChannelWatermarks
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Origin,
    Records,
    Watermark,
    concatenated,
)


def rows(*values: int) -> Records:
    return Records(pa.record_batch({"x": pa.array(values, pa.int64())}), np.array(values, np.int64))


class Gate:
    """A gate over channels that the test fills."""

    def __init__(
        self,
        channels: int,
        is_aligned: bool = True,
        inputs: Sequence[int] | None = None,
        is_timed: Sequence[bool] | None = None,
    ) -> None:
        self.channels = [LocalChannel() for _ in range(channels)]
        self.gate = InputGate(self.channels, Alignment(channels, is_aligned), inputs, is_timed)

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


def numbers(elements: Sequence[Element]) -> list[int]:
    """What all records hold, sorted; there is nothing else among them."""
    assert all(isinstance(element, Records) for element in elements), elements
    return sorted(n for batch in values(elements) for n in cast("list[int]", batch))


def test_the_watermark_is_the_lowest_of_all_channels() -> None:
    gate = Gate(3)
    gate.send(0, Watermark(50))
    gate.send(1, Watermark(20))
    assert gate.take() == []
    gate.send(2, Watermark(30))
    assert gate.take() == [Watermark(20)]
    gate.send(1, Watermark(40))
    assert gate.take() == [Watermark(30)]


def test_a_batch_with_more_rows_than_are_asked_for_comes_in_pieces_in_its_order() -> None:
    gate = Gate(2)
    gate.send(0, rows(*range(10)), Watermark(3), rows(10))
    gate.send(1, rows(20), Watermark(7), rows(21))
    taken = []
    while (element := gate.gate.receive(rows_max=4)) is not None:
        assert not isinstance(element, Records) or len(element) <= 4
        taken.append(element)
    first = [n for n in numbers([e for e in taken if isinstance(e, Records)]) if n < 20]
    assert first == list(range(11))
    behind = values(taken).index(Watermark(3))
    assert numbers([e for e in taken[behind:] if isinstance(e, Records)]) in ([10], [10, 21])


def test_what_is_left_of_a_batch_comes_before_the_barrier_behind_it() -> None:
    gate = Gate(1)
    gate.send(0, rows(*range(5)), Barrier(1), rows(5))
    taken = [gate.gate.receive(rows_max=2) for _ in range(5)]
    assert values([e for e in taken if e is not None]) == [[0, 1], [2, 3], [4], Barrier(1), [5]]


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
    assert numbers(gate.take()) == [1, 10, 11]
    gate.send(1, rows(12), Barrier(7), rows(13))
    taken: list[Any] = values(gate.take())
    assert taken[:2] == [[12], Barrier(7)]
    assert sorted(taken[2]) == [2, 13]


def test_without_alignment_nothing_waits() -> None:
    gate = Gate(2, is_aligned=False)
    gate.send(0, Barrier(7), rows(2))
    gate.send(1, rows(10))
    assert numbers(gate.take()) == [2, 10]
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


CHANNELS = 3
SCRIPTS = st.lists(
    st.lists(st.one_of(st.integers(1, 3_000), st.sampled_from(["watermark", "idle"])), max_size=8),
    min_size=CHANNELS,
    max_size=CHANNELS,
)
"""What each channel delivers before its barrier and behind it: so many rows, or what is no record."""


@given(SCRIPTS, SCRIPTS, st.booleans())
def test_small_batches_come_as_one_and_nothing_passes_anything_else(
    before: list[list[int | str]], behind: list[list[int | str]], is_aligned: bool
) -> None:
    """A row is `channel * 1e6 + its number`. All rows before a barrier come before it, and with alignment no
    others; each channel's rows come in its order; the watermark never passes a row of a channel that has not
    delivered it; batches that have many rows are passed on as they are."""
    gate = Gate(CHANNELS, is_aligned)
    sent = [0] * CHANNELS
    for channel in range(CHANNELS):
        for script in (before[channel], [Barrier(1)], behind[channel]):
            for step in script:
                if isinstance(step, int):
                    first = channel * 1_000_000 + sent[channel]
                    gate.send(channel, rows(*range(first, first + step)))
                    sent[channel] += step
                elif isinstance(step, Barrier):
                    gate.send(channel, step)
                else:
                    gate.send(channel, Watermark(sent[channel]) if step == "watermark" else Idle())
    taken = gate.take()
    got: list[list[int]] = [[] for _ in range(CHANNELS)]
    for element in taken:
        match element:
            case Records():
                for row in element.batch.column(0).to_pylist():
                    got[row // 1_000_000].append(row % 1_000_000)
                assert len(element) < 2 * 8_192
            case Watermark(time_ms):
                for channel, steps in enumerate(zip(before, behind, strict=True)):
                    if all("idle" not in script for script in steps):
                        assert len(got[channel]) >= time_ms
            case Barrier():
                held = [sum(n for n in script if isinstance(n, int)) for script in before]
                assert all(len(g) >= h for g, h in zip(got, held, strict=True))
                if is_aligned:
                    assert [len(g) for g in got] == held
    assert got == [list(range(count)) for count in sent]
    assert [e for e in taken if isinstance(e, Barrier)] == [Barrier(1)]


def test_a_hundred_channels_with_few_rows_are_a_batch_and_a_large_one_is_not_copied() -> None:
    gate = Gate(128)
    for channel in range(128):
        gate.send(channel, rows(*range(30)))
    assert [len(batch) for batch in gate.take() if isinstance(batch, Records)] == [128 * 30]
    large = rows(*range(5_000))
    gate.send(3, large)
    assert gate.take() == [large]


def test_side_arrays_are_joined_as_the_rows_are() -> None:
    """Each part numbers the splits of its rows in its own way; only some parts say what kind rows are."""
    one = Records(
        pa.record_batch({"x": [1, 2]}),
        np.array([10, 20]),
        np.array([5, 6], np.uint64),
        Origin(("a", "b"), np.array([1, 0], np.uint16), np.array([7, 8])),
    )
    other = Records(
        pa.record_batch({"x": [3]}),
        np.array([30]),
        np.array([7], np.uint64),
        Origin(("c", "b"), np.array([1], np.uint16), np.array([9])),
        np.array([3], np.int8),
    )
    joined = concatenated([one, other])
    assert joined.batch.to_pydict() == {"x": [1, 2, 3]}
    assert joined.event_time is not None
    assert joined.key_hash is not None
    assert joined.kind is not None
    assert joined.origin is not None
    assert (joined.event_time.tolist(), joined.key_hash.tolist()) == ([10, 20, 30], [5, 6, 7])
    assert joined.kind.tolist() == [0, 0, 3]
    assert [joined.origin.describe(row) for row in range(3)] == [
        "b at offset 7",
        "a at offset 8",
        "b at offset 9",
    ]
    assert concatenated([one]) is one


def test_records_are_of_the_input_whose_channel_they_came_on_and_are_gathered_within_it() -> None:
    gate = Gate(3, inputs=[0, 1, 1])
    gate.send(0, rows(1), rows(2))
    gate.send(1, rows(3))
    gate.send(2, rows(4))
    came = []
    while (element := gate.gate.receive()) is not None:
        came.append((gate.gate.input, values([element])))
    assert came == [(0, [[1]]), (1, [[3, 4]]), (0, [[2]])]
    assert gate.gate.has_right_input
    assert not Gate(2).gate.has_right_input


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_no_row_changes_its_input_or_its_place_in_its_channel(sent: list[tuple[int, int]]) -> None:
    gate, inputs = Gate(4, inputs=[0, 1, 0, 1]), [0, 1, 0, 1]
    for number, (channel, kind) in enumerate(sent):
        gate.send(channel, Watermark(number) if kind == 0 else rows(10 * number + channel))
    came: list[int] = []
    while (element := gate.gate.receive()) is not None:
        if isinstance(element, Records):
            its = element.batch.column(0).to_pylist()
            assert {inputs[value % 10] for value in its} == {gate.gate.input}
            came += its
    for channel in range(4):
        wanted = [10 * n + of for n, (of, kind) in enumerate(sent) if of == channel and kind]
        assert [value for value in came if value % 10 == channel] == wanted


def test_a_barrier_comes_when_it_has_come_on_both_inputs() -> None:
    gate = Gate(2, inputs=[0, 1])
    gate.send(0, rows(1), Barrier(7), rows(2))
    gate.send(1, rows(3))
    assert sorted(map(str, values(gate.take()))) == ["[1]", "[3]"]
    gate.send(1, rows(4), Barrier(7), rows(5))
    first, barrier, *behind = values(gate.take())
    assert (first, barrier) == ([4], Barrier(7))
    assert sorted(map(str, behind)) == ["[2]", "[5]"]


def test_an_input_without_event_time_holds_no_watermark_back_and_ends_nothing() -> None:
    gate = Gate(2, inputs=[0, 1], is_timed=[True, False])
    gate.send(0, Watermark(5))
    gate.send(1, rows(1))
    assert values(gate.take()) == [Watermark(5), [1]]
    gate.send(0, EndOfInput())
    assert gate.take() == [Watermark(WATERMARK_MAX_MS)], "the other one may go on for ever"
    gate.send(1, rows(2), EndOfInput())
    assert values(gate.take()) == [[2], EndOfInput()]


def test_an_idle_or_finished_input_does_not_stop_the_other() -> None:
    gate = Gate(2, inputs=[0, 1])
    gate.send(0, Watermark(5))
    gate.send(1, Watermark(3))
    assert gate.take() == [Watermark(3)]
    gate.send(1, Idle())
    gate.send(0, Watermark(9))
    assert gate.take() == [Watermark(9)]
    gate.send(1, EndOfInput())
    gate.send(0, Watermark(12), rows(1))
    assert values(gate.take()) == [Watermark(12), [1]]
