"""The header of records that may be in a topic already, since the job has gone back (`--from`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA

HEADER = "onceflow-went-back-to"
"""Its value is the id, in digits, of the checkpoint after which the record may have been written before."""
_HEADERS = PRODUCE_SCHEMA.field("headers")


def with_header(rows: pa.RecordBatch, value: bytes) -> pa.RecordBatch:
    """Rows in PRODUCE_SCHEMA with HEADER as the last header of each."""
    headers = pc.fill_null(rows["headers"], pa.scalar([], _HEADERS.type))
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    flat = headers.flatten()
    mark = pa.array([{"key": HEADER, "value": value}], flat.type)
    # Behind the headers of each row comes the one at the end of `all_of_them`.
    taken = np.insert(np.arange(len(flat), dtype=np.int64), ends, len(flat))
    all_of_them = pa.concat_arrays([flat, mark])
    offsets = np.concatenate([[0], ends + np.arange(1, len(rows) + 1)]).astype(np.int32)
    marked = pa.ListArray.from_arrays(offsets, all_of_them.take(pa.array(taken)), type=_HEADERS.type)
    return rows.set_column(rows.schema.get_field_index("headers"), _HEADERS, marked)
