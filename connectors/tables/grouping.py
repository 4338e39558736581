"""Rows by the values of some columns: which partition of a table each of them is in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def groups(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of each combination of values, in their order. Null is a value."""
    codes = np.zeros(batch.num_rows, np.int64)
    for name in columns:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        _, codes = np.unique(
            codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True
        )
    order = np.argsort(codes, kind="stable")
    ends = [*(np.flatnonzero(np.diff(codes[order])) + 1), batch.num_rows]
    if len(ends) == 1:
        yield batch
        return
    sorted_rows, start = batch.take(pa.array(order)), 0
    for end in ends:
        yield sorted_rows.slice(start, end - start)
        start = end
