"""KeyRows: the key columns of a keyed operator, by number. With kernels texts lie in TextRows."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices
from onceflow.runtime.state.columns import ArrowRows
from onceflow.runtime.state.heap.text_rows import TextRows, are_texts


class FrozenKeyRows(Protocol):
    """Key columns as they were. Any thread, one at a time."""

    def take(self, rows: Indices) -> pa.RecordBatch:
        """These rows, in this order."""
        ...


class KeyRows(FrozenKeyRows, Protocol):
    """Rows that are appended, and read by number."""

    def append(self, batch: pa.RecordBatch, rows: Indices) -> None:
        """Add these rows of the batch at the end; it may have other columns, too."""
        ...

    def frozen(self) -> FrozenKeyRows:
        """These rows as they are now; nothing is copied."""
        ...

    def keep(self, rows: Indices) -> None:
        """Keep these rows only, in this order."""
        ...


def key_rows(schema: pa.Schema) -> KeyRows:
    """Rows of keys for key columns of this schema."""
    return TextRows(schema) if ops().are_compiled and are_texts(schema) else ArrowRows(schema)
