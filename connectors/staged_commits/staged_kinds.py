"""Row kinds beside staged rows, for sinks that take updates and deletes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import Records, RowKind

KIND = "onceflow.kind"
"""The last column of such rows: the RowKind of each, int8."""


def with_kind(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(KIND, pa.int8(), nullable=False))


def kinds_beside(schema: pa.Schema, records: Records) -> pa.RecordBatch:
    """The rows with their kinds, in a schema that `with_kind` has made; where none are given, all are new."""
    kinds = records.kind if records.kind is not None else np.full(len(records), RowKind.INSERT, np.int8)
    return pa.RecordBatch.from_arrays([*records.batch.columns, pa.array(kinds)], schema=schema)
