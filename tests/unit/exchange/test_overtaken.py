"""What one barrier has overtaken: all before it on each channel, whenever it comes, and nothing behind it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.exchange.overtaken import Overtaken
from onceflow.runtime.records import Barrier, Element, Idle, Watermark
from tests.unit.exchange.test_input_gate import rows

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
