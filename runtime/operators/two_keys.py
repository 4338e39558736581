"""The keys of an operator with two inputs: one table has those of both, under the names of the left one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True)
class RightInput:
    """The right input of a KeyedCoProcess: its key columns, its schema, and what makes records of it."""

    key_columns: tuple[str, ...]
    schema: pa.Schema
    reader: RecordReader

    @property
    def key_fields(self) -> list[pa.Field]:
        return [self.schema.field(name) for name in self.key_columns]


def joint_keys(left: Sequence[pa.Field], right: Sequence[pa.Field]) -> pa.Schema:
    """The key columns as the state has them: null if one of the two sides may be."""
    pairs = zip(left, right, strict=True)
    return pa.schema([ours.with_nullable(ours.nullable or theirs.nullable) for ours, theirs in pairs])


def keys_of(batch: pa.RecordBatch, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """The key columns of one side, which calls them `names`, as the state has them."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in names], schema=schema)
