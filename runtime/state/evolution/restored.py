"""Restored state under the types that a program declares; operators never see what was kept under others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow as pa

from onceflow.runtime.state.evolution.conversion import converted
from onceflow.runtime.state.evolution.readers import Reader, Readers, names_kept_as
from onceflow.runtime.state.operator_state import Batches, RestoredState
from onceflow.runtime.types.value_types import ValueType

_OF_PARTS = ("state", "expires", "processing_expires")
"""The columns that are structs with a field for each declared state."""


def as_declared(state: RestoredState, readers: Readers, uid: str) -> RestoredState:
    """The same state, its parts under the types that the program declares. Reading it raises Fatal for a
    value that its type can't have."""
    if not readers:
        return state
    tables = {
        name: partial(_read, batches, readers, f"operator {uid!r}") for name, batches in state.tables.items()
    }
    return replace(state, tables=tables)


def _read(batches: Batches, readers: Readers, where: str) -> Iterator[pa.RecordBatch]:
    for batch in batches():
        batch = _renamed(batch, readers)
        for part, reader in readers.items():
            batch = _part_read(batch, reader, f"{where}, {part!r}")
        yield batch


def _renamed(batch: pa.RecordBatch, readers: Readers) -> pa.RecordBatch:
    """The same, each part under the name that it has now; so are its times of expiry."""
    state = batch.schema.get_field_index("state")
    if state < 0 or not any(reader.former_names for reader in readers.values()):
        return batch
    meant = names_kept_as(readers, readers, [field.name for field in batch.schema.field(state).type])
    now = {names[0]: name for name, names in meant.items()}
    for place, column in enumerate(batch.schema.names):
        if now and column in _OF_PARTS:
            struct = batch.column(place)
            fields = [field.with_name(now.get(field.name, field.name)) for field in struct.type]
            mask = struct.is_null() if struct.null_count else None
            children = [struct.field(n) for n in range(struct.type.num_fields)]
            renamed = pa.StructArray.from_arrays(children, fields=fields, mask=mask)
            batch = batch.set_column(place, column, renamed)
    return batch


def _part_read(batch: pa.RecordBatch, reader: Reader, what: str) -> pa.RecordBatch:
    column, *field = reader.path or ("",)
    place = batch.schema.get_field_index(column)
    if place < 0:
        return batch
    kept = batch.column(place)
    read = _field_read(kept, field[0], reader.type, what) if field else converted(kept, reader.type, what)
    return batch if read is kept else batch.set_column(place, column, read)


def _field_read(struct: pa.StructArray, name: str, of: ValueType, what: str) -> pa.StructArray:
    place = struct.type.get_field_index(name)
    if place < 0:
        return struct
    kept = struct.field(place)
    read = converted(kept, of, what)
    if read is kept:
        return struct
    children = [read if i == place else struct.field(i) for i in range(struct.type.num_fields)]
    fields = [
        pa.field(f.name, child.type, f.nullable) for f, child in zip(struct.type, children, strict=True)
    ]
    mask = struct.is_null() if struct.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
