"""The kind of a row goes wherever the row goes, and only there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.exchange.frames import HEADER, FrameCodec
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.kernels.ops import Ops, ops_here, using
from onceflow.runtime.operators.expressions import Columns, Expressions, Keep
from onceflow.runtime.operators.stateless import FilterRecords, FlatMapRecords, MapRecords
from onceflow.runtime.records import Records, RowKind
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.records_of_columns import RecordReader

SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.string())])
KINDS = st.lists(st.sampled_from(list(RowKind)), min_size=1, max_size=40)


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    key: str


def records(kinds: list[RowKind]) -> Records:
    """Row i has the id i."""
    ids = list(range(len(kinds)))
    batch = pa.record_batch([ids, [f"k{n % 5}" for n in ids]], schema=SCHEMA)
    return Records(batch, np.array(ids, np.int64), kind=np.array(kinds, np.int8))


def assert_each_has_its_own(found: Records | None, kinds: list[RowKind]) -> None:
    if found is None:
        return
    ids = found.batch.column("id").to_pylist()
    assert found.kind is not None
    assert found.kind.dtype == np.int8
    assert found.kind.tolist() == [int(kinds[n]) for n in ids]


@given(kinds=KINDS, data=st.data())
def test_filter_take_and_slice(kinds: list[RowKind], data: st.DataObject) -> None:
    rows = records(kinds)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds))))
    assert_each_has_its_own(rows.filter(mask), kinds)
    places = data.draw(st.lists(st.integers(0, len(kinds) - 1)))
    assert_each_has_its_own(rows.take(np.array(places, np.int64)), kinds)
    start = data.draw(st.integers(0, len(kinds)))
    assert_each_has_its_own(rows.slice(start, data.draw(st.integers(0, len(kinds) - start))), kinds)


@given(kinds=KINDS, parallelism=st.integers(1, 4), chosen=st.sampled_from(ops_here()))
def test_split_by_key(kinds: list[RowKind], parallelism: int, chosen: Ops) -> None:
    with using(chosen):
        parts = list(Partitioner(("key",), 128, parallelism).split(records(kinds)))
    for _, part in parts:
        assert_each_has_its_own(part, kinds)
    assert sum(len(part) for _, part in parts) == len(kinds)


@given(kinds=KINDS)
def test_functions_of_one_record(kinds: list[RowKind]) -> None:
    rows, reader = records(kinds), RecordReader(Row)

    def some(row: Row) -> Iterator[Row]:
        for _ in range(row.id % 3):
            yield row

    assert_each_has_its_own(MapRecords("map", lambda row: row, reader, RecordWriter(SCHEMA))(rows), kinds)
    assert_each_has_its_own(FilterRecords("filter", lambda row: row.id % 2, reader)(rows), kinds)
    assert_each_has_its_own(FlatMapRecords("flat_map", some, reader, RecordWriter(SCHEMA))(rows), kinds)


@given(kinds=KINDS)
def test_expressions(kinds: list[RowKind]) -> None:
    keep = Keep(pl.col("id") % 2 == 0)
    columns = Columns((("id", pl.col("id")), ("key", pl.col("key") + "!")))
    for steps in ([keep], [columns], [columns, keep], [keep, columns]):
        assert_each_has_its_own(Expressions(steps, SCHEMA)(records(kinds)), kinds)


def over_the_wire(rows: Records, has_kinds: bool) -> Any:
    codec = FrameCodec(
        SCHEMA, has_event_time=True, has_key_hash=False, with_origin=False, has_kinds=has_kinds
    )
    frame = b"".join(codec.encode(rows))
    kind, meta_length, _ = HEADER.unpack(frame[: HEADER.size])
    content = memoryview(bytearray(frame[HEADER.size :]))
    return codec.decode(kind, bytes(content[:meta_length]), content[meta_length:])


@given(kinds=KINDS)
def test_frames(kinds: list[RowKind]) -> None:
    assert_each_has_its_own(over_the_wire(records(kinds), has_kinds=True), kinds)


def test_no_kinds_are_all_inserts_and_cost_nothing_where_nobody_declares_any() -> None:
    plain = Records(records([RowKind.DELETE] * 3).batch, np.zeros(3, np.int64))
    assert over_the_wire(plain, has_kinds=True).kind.tolist() == [RowKind.INSERT] * 3
    assert over_the_wire(plain, has_kinds=False).kind is None
    for same in (plain.take(np.array([0])), plain.slice(0, 1), plain.filter(np.array([True, False, True]))):
        assert same.kind is None
    codec = FrameCodec(SCHEMA, has_event_time=True, has_key_hash=False, with_origin=False)
    with_flag = FrameCodec(SCHEMA, has_event_time=True, has_key_hash=False, with_origin=False, has_kinds=True)
    assert sum(map(len, codec.encode(plain))) < sum(map(len, with_flag.encode(plain)))


def test_kinds_count_in_the_bounds_of_queues() -> None:
    rows = records([RowKind.DELETE] * 100)
    assert rows.nbytes == Records(rows.batch, rows.event_time).nbytes + 100
