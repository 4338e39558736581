"""Rows by number: kernels and arrays give the same order and the same columns."""

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.kernels.compiled import kernels_enabled
from onceflow.runtime.state.hashing import splitmix64
from onceflow.runtime.state.rows import order_by_hash, take_rows

pytestmark = pytest.mark.skipif(not kernels_enabled(), reason="needs numba")


@pytest.mark.parametrize("rows", [0, 1, 2, 1_000, 50_000])
@pytest.mark.parametrize("spread", ["even", "few values", "same high bits", "falling"])
def test_hashes_are_sorted_however_they_are_spread(rows, spread):
    hashes = splitmix64(np.arange(rows, dtype=np.uint64))
    if spread == "few values":
        hashes %= np.uint64(7)
    if spread == "same high bits":
        hashes >>= np.uint64(23)
    if spread == "falling":
        hashes = np.arange(rows, dtype=np.uint64)[::-1].copy()
    before = hashes.copy()
    order = order_by_hash(hashes, kernels=True)
    assert (order == order_by_hash(hashes, kernels=False)).all()
    assert (hashes == before).all()


@pytest.mark.parametrize("arrow", [pa.string(), pa.binary(), pa.large_string(), pa.int64()])
@pytest.mark.parametrize("with_null", [False, True])
def test_columns_are_taken_alike(arrow, with_null):
    values = ["", "a", "", "bb", "x" * 300, None if with_null else "c"]
    if arrow == pa.int64():
        values = [None if value is None else len(value) for value in values]
    column = pa.array(values, pa.string() if arrow == pa.binary() else arrow).cast(arrow)
    batch = pa.record_batch({"k": column, "n": pa.array(range(6))})
    for rows in (batch, batch.slice(1, 5), batch.slice(2, 1)):
        for slots in ([], [0], [len(rows) - 1, 0, 0], [*range(len(rows))]):
            taken = take_rows(rows, np.array(slots, np.int64), kernels=True)
            taken.validate(full=True)
            assert taken.equals(take_rows(rows, np.array(slots, np.int64), kernels=False))
