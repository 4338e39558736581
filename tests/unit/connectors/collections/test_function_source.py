"""A function that yields records: called again after a restart, and refused where it yields others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.collections.function_source import POLL_MS, FunctionReader, FunctionSource
from onceflow.connectors.collections.python_rows import fingerprint, row_type
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError, Retryable, UserFunctionError

NUMBERS = row_type(int, "test")


def opened(
    function: Callable[[], Any], at: SplitState | None = None, clock: ManualClock | None = None
) -> FunctionReader:
    source = FunctionSource(function, NUMBERS)
    reader = source.open_reader(ReaderContext("job", "numbers", 0, 2, clock or ManualClock()))
    reader.add_splits([at] if at else source.open_enumerator("job", ManualClock()).initial_splits())
    return reader


def read(reader: FunctionReader, count: int) -> list[int]:
    fetch = reader.poll(0, count)
    assert fetch is not None
    return fetch.records.column(0).to_pylist()  # type: ignore[no-any-return]


def snapshot(reader: FunctionReader) -> SplitState:
    (split,) = reader.snapshot()
    return split


def test_it_goes_on_behind_what_was_read() -> None:
    reader = opened(lambda: range(10))
    assert read(reader, 4) == [0, 1, 2, 3]
    assert read(opened(lambda: range(10), snapshot(reader)), 100) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("again", "sentence"),
    [
        (lambda: range(3), "yields less than the 4 records that were read before the restart"),
        (lambda: range(5, 20), "yields 8 as record 4, which is not the one that was read before the restart"),
    ],
)
def test_a_function_that_yields_others_is_refused(again: Callable[[], Any], sentence: str) -> None:
    reader = opened(lambda: range(10))
    read(reader, 4)
    with pytest.raises(DataLossError, match=f"source 'numbers': <lambda> {sentence}"):
        opened(again, snapshot(reader)).poll(0, 10)


def test_a_slow_function_does_not_hold_up_barriers() -> None:
    clock = ManualClock()

    def slow() -> Iterator[int]:
        for n in range(4):
            clock.advance(POLL_MS / 2)
            yield n

    reader = opened(slow, clock=clock)
    assert [read(reader, 1_000), read(reader, 1_000)] == [[0, 1], [2, 3]]
    last = reader.poll(0, 1_000)
    assert last is not None
    assert last.finished == {"records"}


def test_what_goes_wrong_in_it_names_it_and_the_line() -> None:
    def breaks() -> Iterator[int]:
        yield 1
        raise ValueError("no more")

    reader = opened(breaks)
    with pytest.raises(
        UserFunctionError, match=r"numbers.*breaks failed on the record after 1 \(at .* no more"
    ):
        reader.poll(0, 10)

    def busy() -> Iterator[int]:
        raise Retryable("busy")

    with pytest.raises(Retryable, match="busy"):
        opened(busy).poll(0, 10)


def test_a_record_of_another_type_is_named() -> None:
    with pytest.raises(UserFunctionError, match="yielded record 2: field 'value' is declared int but is 'b'"):
        opened(lambda: [1, "b"]).poll(0, 10)


def test_a_generator_is_closed() -> None:
    closed = []

    def numbers() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    reader = opened(numbers)
    read(reader, 1)
    reader.close()
    assert closed == [True]


def test_offsets_are_there_if_they_are_wanted() -> None:
    source = FunctionSource(lambda: range(5), NUMBERS)
    reader = source.open_reader(ReaderContext("job", "numbers", 0, 1, ManualClock(), with_origin=True))
    reader.add_splits([SplitState("records", {"next_row": 2, "last": snapshot_of(1)})])
    fetch = reader.poll(0, 2)
    assert fetch is not None
    assert fetch.offset is not None
    assert fetch.offset.tolist() == [2, 3]


def snapshot_of(value: int) -> str:
    return fingerprint(pa.record_batch({"value": [value]}), 0)
