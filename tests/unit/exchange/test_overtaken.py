"""What one barrier has overtaken: all before it on each channel, whenever it comes, and nothing behind it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.exchange.overtaken import Overtaken
from onceflow.runtime.records import Barrier, Element, Idle, Records, Watermark
from tests.unit.exchange.test_input_gate import Gate, numbers, rows, values

BEFORE = st.lists(st.integers(0, 99), max_size=6)


@given(before=BEFORE, behind=BEFORE, read=st.integers(0, 12))
def test_rows_before_the_barrier_are_taken_once_whether_they_are_read_or_wait(
    before: list[int], behind: list[int], read: int
) -> None:
    elements: list[Element] = [
        Watermark(1),
        Barrier(3),
        *map(rows, before),
        Idle(),
        Barrier(4),
        *map(rows, behind),
    ]
    overtaken = Overtaken(4, 2, [1])
    for element in elements[:read]:
        overtaken.take(1, element)
    overtaken.take_all(1, elements[read:])
    assert [records.batch.column(0)[0].as_py() for records in overtaken.by_channel[1]] == before
    assert overtaken.is_whole


def test_a_channel_that_is_not_open_has_nothing() -> None:
    overtaken = Overtaken(4, 2, [1])
    overtaken.take(0, rows(1))
    assert overtaken.by_channel[0] == []
    assert overtaken.open_channels == {1}


# --- In a gate


def overtaken(gate: Gate) -> list[list[int]] | None:
    """The numbers of the rows that were overtaken, by channel."""
    rows = gate.gate.overtaken()
    return None if rows is None else [[n for r in of for n in r.batch.column(0).to_pylist()] for of in rows]


def test_what_waits_before_a_barrier_that_overtakes_is_kept_and_comes_as_before() -> None:
    gate = Gate(2)
    gate.send(0, rows(1), Watermark(3), rows(2), Barrier(7), rows(3))
    gate.send(1, rows(10), Barrier(6), rows(11), Barrier(7), rows(12))
    assert gate.gate.overtake(7)
    assert overtaken(gate) == [[1, 2], [10, 11]], "an older barrier ends nothing"
    assert overtaken(gate) is None, "once"
    assert numbers([e for e in gate.take() if isinstance(e, Records)]) == [1, 2, 3, 10, 11, 12]


def test_what_comes_before_the_barrier_does_is_kept_too() -> None:
    gate = Gate(2)
    gate.send(0, rows(1), Barrier(7), rows(2))
    gate.send(1, rows(10))
    assert not gate.gate.overtake(8), "another one has come"
    assert gate.gate.overtake(7)
    assert overtaken(gate) is None, "the barrier has not come on the second"
    assert numbers(gate.take()) == [1, 2, 10]
    gate.send(1, rows(11))
    assert numbers(gate.take()) == [11]
    gate.send(1, rows(12), Barrier(7), rows(13))
    assert overtaken(gate) == [[1], [10, 11, 12]]


def test_what_was_read_and_not_given_on_is_overtaken_too() -> None:
    gate = Gate(2, inputs=[0, 1])
    gate.send(0, rows(1), rows(2, 3, 4), Barrier(7))
    gate.send(1, rows(10, 11))
    first = gate.gate.receive(rows_max=2)
    assert first is not None
    assert values([first]) == [[1]], "the rows of the other input are held"
    second = gate.gate.receive(rows_max=1)
    assert second is not None
    gate.send(1, Barrier(7))
    assert gate.gate.overtake(7)
    given = {n for element in (first, second) for n in numbers([element])}
    left, right = overtaken(gate) or [[], []]
    assert (left, right) == (
        [n for n in (2, 3, 4) if n not in given],
        [n for n in (10, 11) if n not in given],
    )
    assert numbers(gate.take()) == sorted(left + right)


def test_a_barrier_that_was_read_on_a_channel_has_overtaken_nothing_there() -> None:
    gate = Gate(2)
    gate.send(0, rows(1), Barrier(7), rows(2))
    gate.send(1, *(rows(n) for n in range(10, 14)), Barrier(7))
    for _ in range(3):
        gate.gate.receive(rows_max=1)
    assert gate.gate.overtake(7)
    found = overtaken(gate)
    assert found is not None
    assert found[0] == [] or found[0] == [1]
    assert found[1], "the rest of the other"


def test_of_an_aborted_checkpoint_nothing_is_kept() -> None:
    gate = Gate(2)
    gate.send(0, Barrier(7))
    gate.send(1, rows(10))
    assert gate.gate.overtake(7)
    gate.gate.abort(7)
    gate.send(1, Barrier(7))
    assert overtaken(gate) is None


def test_restored_rows_come_before_all_that_channels_have_and_are_overtaken_too() -> None:
    gate = Gate(2)
    gate.gate.restore(1, [rows(90, 91), rows(92)])
    gate.send(0, Watermark(99), rows(1), Barrier(7))
    gate.send(1, Watermark(99), Barrier(7))
    first = gate.gate.receive(rows_max=1)
    assert first is not None
    assert values([first]) == [[90]]
    assert gate.gate.overtake(7)
    assert overtaken(gate) == [[1], [91, 92]]
    taken = gate.take()
    assert values(taken[:1]) == [[91, 92, 1]]
    assert Watermark(99) in taken
