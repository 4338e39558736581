"""The user's functions over batches: results, event time, origin, and errors that name the record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.errors import Fenced, UserFunctionError
from onceflow.runtime.operators.map_batches import MapBatches
from onceflow.runtime.operators.stateless import (
    FilterRecords,
    FlatMapRecords,
    KeyRecords,
    MapRecords,
)
from onceflow.runtime.records import Origin, Records
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema, describe_type
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True, slots=True)
class Number:
    n: int


NUMBERS = arrow_schema(Number)
READER = RecordReader(Number)
WRITER = RecordWriter(NUMBERS)


def records(*numbers: int, with_origin: bool = True) -> Records:
    rows = len(numbers)
    origin = Origin(("t-0", "t-1"), np.arange(rows, dtype=np.uint16) % 2, np.arange(rows) + 40)
    batch = pa.record_batch({"n": list(numbers)}, schema=NUMBERS)
    return Records(batch, np.arange(rows) * 10, None, origin if with_origin else None)


def half(number: Number) -> Number:
    return Number(100 // number.n)


def test_map() -> None:
    got = MapRecords("uid", half, READER, WRITER)(records(1, 2, 50))
    assert got is not None
    assert got.batch.to_pydict() == {"n": [100, 50, 2]}
    assert got.event_time is not None
    assert got.event_time.tolist() == [0, 10, 20]
    assert got.origin is not None
    assert got.origin.describe(2) == "t-0 at offset 42"


def test_an_error_names_operator_function_record_and_line() -> None:
    with pytest.raises(UserFunctionError) as caught:
        MapRecords("halves", half, READER, WRITER)(records(1, 0, 2))
    message = str(caught.value)
    line = half.__code__.co_firstlineno + 1
    assert message.startswith("operator 'halves': half failed on the record in t-1 at offset 41, Number(n=0)")
    assert f"test_stateless.py:{line})" in message
    assert "ZeroDivisionError: " in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class Parsed:
    """A function object that fails inside of a library."""

    def __call__(self, record: Number) -> Number:
        return Number(json.loads("no number"))


def test_a_function_object_that_fails_in_a_library_is_told_by_its_own_line() -> None:
    line = Parsed.__call__.__code__.co_firstlineno + 1
    with pytest.raises(UserFunctionError, match=rf"Parsed failed .* \(at .*test_stateless.py:{line}\): JSON"):
        MapRecords("parsed", Parsed(), READER, WRITER)(records(1))


def test_without_origin_the_record_itself_is_named() -> None:
    with pytest.raises(UserFunctionError, match=r"failed on the record Number\(n=0\) \(at "):
        MapRecords("halves", half, READER, WRITER)(records(0, with_origin=False))


def test_a_wrong_result_names_field_and_record() -> None:
    with pytest.raises(
        UserFunctionError,
        match=r"'uid': .*<lambda> for the record in t-1 at offset 41.*field 'n' is declared int but is 'x'",
    ):
        MapRecords("uid", lambda r: Number("x" if r.n else 0), READER, WRITER)(records(0, 1))  # type: ignore[arg-type]


def test_our_own_errors_pass() -> None:
    def fenced(_: Number) -> Number:
        raise Fenced("a newer attempt")

    with pytest.raises(Fenced):
        MapRecords("uid", fenced, READER, WRITER)(records(1))


def test_flat_map_repeats_event_time_and_origin() -> None:
    def times(number: Number) -> Iterator[Number]:
        for _ in range(number.n):
            yield number

    got = FlatMapRecords("uid", times, READER, WRITER)(records(2, 0, 1))
    assert got is not None
    assert got.batch.to_pydict() == {"n": [2, 2, 1]}
    assert got.event_time is not None
    assert got.event_time.tolist() == [0, 0, 20]
    assert got.origin is not None
    assert got.origin.offset.tolist() == [40, 40, 42]
    assert FlatMapRecords("uid", times, READER, WRITER)(records(0, 0)) is None
    assert FlatMapRecords("uid", lambda _: None, READER, WRITER)(records(1)) is None


def test_a_flat_map_that_fails_midway_names_its_record() -> None:
    def fails(number: Number) -> Iterator[Number]:
        yield number
        if number.n == 7:
            raise ValueError("seven")

    with pytest.raises(UserFunctionError, match=r"t-0 at offset 42, Number\(n=7\) .*ValueError: seven"):
        FlatMapRecords("uid", fails, READER, WRITER)(records(1, 2, 7))


def test_a_wrong_record_of_a_flat_map_names_the_record_it_came_from() -> None:
    with pytest.raises(UserFunctionError, match=r"t-1 at offset 41.*a dict was returned"):
        FlatMapRecords("uid", lambda r: [r, r] if r.n else [r, {}], READER, WRITER)(records(1, 0))


def test_filter_and_key() -> None:
    got = FilterRecords("uid", lambda r: r.n % 2, READER)(records(1, 2, 3))
    assert got is not None
    assert got.batch.to_pydict() == {"n": [1, 3]}
    assert got.event_time is not None
    assert got.event_time.tolist() == [0, 20]
    assert FilterRecords("uid", lambda r: False, READER)(records(1)) is None
    keyed = KeyRecords(
        "uid", lambda r: str(r.n), READER, pa.field("key", pa.string()), describe_type(str, "key")
    )(records(1, 2))
    assert keyed is not None
    assert keyed.batch.to_pydict() == {"n": [1, 2], "key": ["1", "2"]}


def double_polars(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(n=pl.col("n") * 2, s=pl.col("n").cast(pl.String))


def double_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    doubled = pa.array([2 * n for n in batch.column("n").to_pylist()])
    return pa.record_batch({"s": [str(n) for n in batch.column("n").to_pylist()], "n": doubled})


@pytest.mark.parametrize(("fn", "is_polars"), [(double_polars, True), (double_arrow, False)])
def test_map_batches(fn: Callable[[Any], Any], is_polars: bool) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])
    got = MapBatches("uid", fn, schema, is_polars, None)(records(1, 2))
    assert got is not None
    assert got.batch.schema == schema
    assert got.batch.to_pydict() == {"n": [2, 4], "s": ["1", "2"]}
    assert got.event_time is not None
    assert got.event_time.tolist() == [0, 10]


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (lambda b: b.slice(1), "1 rows were returned for 2, so it is open which event time they have"),
        (lambda b: 5, "a int was returned; expected a RecordBatch, Table or DataFrame"),
        (
            lambda b: b.rename_columns(["m"]),
            "column 'n' of the declared schema is not in what was returned; there are m",
        ),
        (lambda b: pa.record_batch({"n": ["x", "y"]}), "column 'n' is declared int64 but is string"),
        (lambda b: pa.record_batch({"n": [1, None]}), "column 'n' has nulls, but is declared without"),
        (lambda b: 1 // 0, "failed on .*ZeroDivisionError"),
    ],
)
def test_map_batches_refuses(fn: Callable[[Any], Any], sentence: str) -> None:
    with pytest.raises(UserFunctionError, match=sentence):
        MapBatches("uid", fn, NUMBERS, False, None)(records(1, 2))


def happened(*times: int, behind_ms: int = 0) -> Records | None:
    """What comes of rows at 0 and 10 ms whose function says that they happened at these times."""
    made = pa.record_batch({"n": pa.array(times, pa.int64())})
    return MapBatches("uid", lambda _: made, NUMBERS, False, "n", behind_ms)(records(1, 2))


def test_map_batches_may_say_when_its_rows_happened() -> None:
    got = happened(7, 2, 30)
    assert got is not None
    assert got.event_time is not None
    assert got.event_time.tolist() == [7, 2, 30]


def test_a_row_may_not_have_happened_earlier_than_was_said() -> None:
    """It may lie behind the watermark, and would be late."""
    assert happened(-5, 20, behind_ms=5) is not None
    with pytest.raises(UserFunctionError, match=r"'n' is -6, which is 6 ms before .* behind= allows 5 ms"):
        happened(20, -6, behind_ms=5)
    with pytest.raises(UserFunctionError, match=r"'n' is -1, which is 1 ms before .* behind= allows 0 ms"):
        happened(-1)
