"""The columns of a table as its files have them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import StateHandle, TableFile
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError


def stored_schema(store: CheckpointStore, handles: Sequence[StateHandle], table: str) -> pa.Schema | None:
    """The columns in any file of this table; None: there is none. Only the beginning of each file is read.
    Raises CorruptCheckpointError."""
    newest = [handle.files[table][-1] for handle in handles if table in handle.files]
    schemas = {file.path: _schema(store, file) for file in newest}
    if not schemas:
        return None
    return pa.unify_schemas([schema.remove_metadata() for schema in schemas.values()])


def _schema(store: CheckpointStore, table: TableFile) -> pa.Schema:
    for path in (table.path, copy_path(table.path)):
        try:
            with store.open(path) as file:
                file.seek(table.offset)
                return pa.ipc.open_stream(file).schema
        except (OSError, pa.ArrowInvalid):
            continue
    raise CorruptCheckpointError(
        f"{store.describe(table.path)} (table {table.name!r}) is gone or was altered, and has no whole copy: "
        "read another checkpoint"
    )
