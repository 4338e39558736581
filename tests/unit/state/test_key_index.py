"""KeyIndex and HeapTable: exact for any keys, also if hashes collide."""

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.kernels.ops import COMPILED, PLAIN, ops, ops_here, using
from onceflow.runtime.state.columns import ArrowRows
from onceflow.runtime.state.hashing import hash_keys, splitmix64
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.key_index import KeyIndex
from onceflow.runtime.state.table import Layout

NEEDS_NUMBA = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")


@pytest.fixture(params=ops_here(), ids=str)
def index(request) -> KeyIndex:
    """Without kernels and with them."""
    with using(request.param):
        return KeyIndex()


def words(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_duplicates_in_a_batch_share_a_new_slot(index):
    found = index.find_or_add(words(5, 7, 5, 7, 9), words(1, 1, 1, 1, 1))
    assert found.rows[0] == found.rows[2]
    assert found.rows[1] == found.rows[3]
    assert len({*found.rows.tolist()}) == 3
    assert [found.rows[row] for row in found.new] == [0, 1, 2]


def test_keys_that_share_the_first_hash_are_told_apart_by_the_second(index):
    rng = np.random.default_rng(0)
    checks = rng.integers(0, 500, 5_000).astype(np.uint64)
    rows = index.find_or_add(np.zeros(5_000, np.uint64), checks).rows
    assert len(index) == 500
    for check in range(500):
        assert len(set(rows[checks == check].tolist())) == 1


def test_hashes_that_share_their_place_in_the_table_do_not_meet(index):
    """All hashes agree in their low 40 bits, so that all keys have the same home."""
    hashes = words(*(i << 40 for i in range(2_000)))
    rows = index.find_or_add(hashes, hashes).rows
    assert sorted(rows.tolist()) == list(range(2_000))
    assert (index.find_or_add(hashes[::-1].copy(), hashes[::-1].copy()).rows == rows[::-1]).all()


def test_weak_key_hash_never_merges_keys():
    """Goal: real key columns, but the first hash is the same for all."""
    schema = pa.schema([("k", pa.string())])
    rows = HeapTable(Layout(["k"], schema, {}))
    keys = ["", "a", "ä", "a", None, "", "\x00", "a\x00"]
    batch = pa.record_batch({"k": pa.array(keys)}, schema=schema)
    got = rows.find_or_add(batch, np.zeros(len(keys), np.uint64), None)
    assert rows.keys(got).column("k").to_pylist() == keys
    assert len(rows) == 6


def test_growth_keeps_every_slot(index):
    keys = splitmix64(np.arange(300_000, dtype=np.uint64))
    got = [index.find_or_add(keys[i : i + 7_000], keys[i : i + 7_000]).rows for i in range(0, 300_000, 7_000)]
    again = index.find_or_add(keys, keys)
    assert len(again.new) == 0
    assert (again.rows == np.concatenate(got)).all()
    assert len(index) == 300_000


def test_compaction_renumbers_in_order_and_shrinks_the_table(index):
    keys = splitmix64(np.arange(100_000, dtype=np.uint64))
    rows = index.find_or_add(keys, keys).rows
    index.remove(rows[100:])
    assert len(index) == 100
    assert index.is_sparse
    kept = index.compact()
    assert (index.hashes == keys[:100][np.argsort(rows[:100])]).all()
    assert kept.tolist() == sorted(rows[:100].tolist())
    again = index.find_or_add(keys[:100], keys[:100])
    assert len(again.new) == 0
    assert index.size == 100


def test_keys_that_come_and_go_leave_no_place_behind(index):
    """Goal: a table that stays as large as it is, over many windows."""
    for first in range(0, 100_000, 500):
        keys = splitmix64(np.arange(first, first + 500, dtype=np.uint64))
        index.remove(index.find_or_add(keys, keys).rows)
        index.compact()
        assert len(index) == 0
    table = getattr(index._places, "_table", None)
    if table is None:
        assert not index._places._rows
    else:
        assert len(table) < 4_096
        assert not table.any()


@pytest.mark.parametrize(
    "columns",
    [
        {"a": pa.array([1, 2, None, 1]), "b": pa.array(["x", "x", "x", None])},
        {"a": pa.array([{"p": 1, "q": None}, {"p": None, "q": 1}, None, {"p": None, "q": None}])},
        {"a": pa.array([0.0, 1.0, None, float("inf")])},
        {"a": pa.array([b"", b"\x00", b"\x00\x00", None])},
    ],
)
def test_key_columns_come_back_as_they_were(columns):
    batch = pa.record_batch(columns)
    rows = HeapTable(Layout(list(columns), batch.schema, {}))
    got = rows.find_or_add(batch, hash_keys(batch, list(columns)), None)
    assert len(rows) == 4
    assert rows.keys(got).to_pylist() == batch.to_pylist()


def test_a_frozen_view_stays_as_it_was():
    schema = pa.schema([("k", pa.int64())])
    rows = HeapTable(Layout(["k"], schema, {}, "start"))

    def add(first: int, end: int) -> np.ndarray:
        batch = pa.record_batch({"k": list(range(first, end))}, schema=schema)
        starts = np.full(end - first, first, np.int64)
        return rows.find_or_add(batch, hash_keys(batch, ["k"]), starts)

    old = add(0, 1000)
    frozen = rows.freeze(128)
    add(1000, 5000)
    rows.remove(old)
    rows.compact()
    add(5000, 20_000)
    batch = frozen.piece(0, len(frozen))
    keys = pa.RecordBatch.from_struct_array(batch.column("key"))
    assert sorted(keys.column("k").to_pylist()) == list(range(1000))
    assert batch.column("start").to_pylist() == [0] * 1000
    assert (batch.column("key_group").to_numpy() == key_groups(keys)).all()


def key_groups(keys: pa.RecordBatch) -> np.ndarray:
    return ((hash_keys(keys, ["k"]) >> np.uint64(32)) * np.uint64(128) >> np.uint64(32)).astype(np.uint16)


def test_rows_in_thousands_of_pieces_stay_few_pieces_and_in_their_order():
    rows = ArrowRows(pa.schema([("k", pa.int64())]))
    for i in range(3_000):
        rows.append(pa.record_batch({"k": [2 * i, 2 * i + 1]}), np.arange(2))
    assert len(rows._pieces) <= 60
    frozen = rows.frozen()
    assert rows.take(np.array([5_999, 0, 17])).column("k").to_pylist() == [5_999, 0, 17]
    rows.keep(np.arange(0, 6_000, 2))
    for i in range(100):
        rows.append(pa.record_batch({"k": [-i]}), np.arange(1))
    assert rows.take(np.arange(3_100)).column("k").to_pylist() == [*range(0, 6_000, 2), *range(0, -100, -1)]
    assert frozen.take(np.arange(6_000)).column("k").to_pylist() == [*range(6_000)]


@NEEDS_NUMBA
def test_kernels_and_arrays_number_slots_alike():
    """Goal: more than one round of places in the array form, growth, and keys that are not in order."""
    rng = np.random.default_rng(5)
    with using(PLAIN):
        by_arrays = KeyIndex()
    with using(COMPILED):
        by_kernels = KeyIndex()
    for rows in (0, 1, 3_000, 40_000, 63, 64, 65):
        hashes = splitmix64(rng.integers(0, 30_000, rows).astype(np.uint64)) & np.uint64(0xFFFF)
        checks = rng.integers(0, 2, rows).astype(np.uint64)
        one, other = by_arrays.find_or_add(hashes, checks), by_kernels.find_or_add(hashes, checks)
        assert (one.rows == other.rows).all()
        assert (one.new == other.new).all()
        assert one.first_new == other.first_new
    assert (by_arrays.hashes == by_kernels.hashes).all()
    assert (by_arrays.checks == by_kernels.checks).all()
