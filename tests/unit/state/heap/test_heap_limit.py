"""HeapLimit: state that outgrows its memory is told in time, with the way out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.heap.heap_limit import LimitedHeap
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.row_sizes import RowSizes, deep_bytes
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.overflow import StateFullError
from onceflow.runtime.state.row_values import Cursor, DeclaredStates, RowValues, ValueCodec
from onceflow.runtime.state.tables import Layout, grouped_table, tracked_table

SCHEMA = pa.schema([pa.field("user", pa.int64())])


def test_a_table_that_outgrows_its_share_is_refused_with_the_way_out() -> None:
    backend = LimitedHeap(1 << 20)
    texts = RowValues(ValueCodec("text", str), Cursor())
    layout = Layout(["user"], SCHEMA, {"state": DeclaredStates({"text": texts})})
    other = backend.overflow(tracked_table(layout), layout)
    limit = backend.overflow(tracked_table(layout), layout)

    def fill(users: range) -> None:
        batch = pa.record_batch([pa.array(users, pa.int64())], SCHEMA)
        for row in limit.find_or_add(batch, hash_keys(batch, ["user"])):
            texts.values[row] = "x" * 1_000

    for first in range(0, 300, 100):
        fill(range(first, first + 100))
        assert not limit.needs_room()
    fill(range(300, 600))  # half a megabyte is the table's: of a thousand letters and something each
    with pytest.raises(StateFullError, match=r"keys take 0 MB .* --state-backend rocksdb"):
        limit.needs_room()
    assert not other.needs_room()


def test_so_is_one_with_many_rows_for_a_key() -> None:
    backend = LimitedHeap(1 << 20)
    layout = Layout(["user"], SCHEMA, {"n": NumberColumn()})
    table = grouped_table(layout)
    limit = backend.grouped_overflow(table, [*layout.columns])
    batch = pa.record_batch([pa.array([1], pa.int64())], SCHEMA)
    table.add(limit.find_keys(batch, hash_keys(batch, ["user"])).repeat(1_000))
    assert not limit.needs_room()
    table.add(limit.find_keys(batch, hash_keys(batch, ["user"])).repeat(9_000))
    with pytest.raises(StateFullError, match=r"10,000 rows take 1 MB .* --state-backend rocksdb"):
        limit.needs_room()


def test_arrays_of_numbers_are_no_python_objects() -> None:
    sizes = {}
    columns = {
        "array": NumberColumn(),
        "objects": DeclaredStates({"n": RowValues(ValueCodec("n", int), Cursor())}),
    }
    for name, column in columns.items():
        table = tracked_table(Layout(["user"], SCHEMA, {"state": column}))
        batch = pa.record_batch([pa.array(range(100), pa.int64())], SCHEMA)
        rows = table.find_or_add(batch, hash_keys(batch, ["user"]))
        if isinstance(column, NumberColumn):
            column.put(rows, 1 << 40)
        assert isinstance(table, HeapTable)
        sizes[name] = RowSizes(table).memory_bytes() // 100
    assert sizes["array"] in range(170, 190)
    assert sizes["objects"] > sizes["array"] + 30


def test_what_plain_values_take() -> None:
    assert deep_bytes(["x" * 1_000, None, (1, [b"y" * 500])]) in range(1_500, 2_000)
