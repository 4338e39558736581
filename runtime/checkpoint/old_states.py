"""What the files of a checkpoint without descriptions say of the state in them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from msgspec import structs

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.state_fits import Fit, Program, fit
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.state.description import (
    RECORD,
    KeyColumn,
    StateDescription,
    StatePart,
    Windows,
    type_text,
)


def restorable(store: CheckpointStore, manifest: CheckpointManifest, program: Program) -> Fit:
    """`state_fits.fit`, with the files asked where the manifest says nothing."""
    return fit(manifest, program, _descriptions(store, manifest, program.states))


def _descriptions(
    store: CheckpointStore, manifest: CheckpointManifest, states: Mapping[str, StateDescription | None]
) -> dict[str, StateDescription]:
    """Descriptions, by uid, of the states that the manifest does not describe: names and types, as far as the
    files' own schemas tell. A file that can't be read says nothing here: whoever restores it says why."""
    found: dict[str, StateDescription] = {}
    for handle in manifest.states:
        now = states.get(handle.uid)
        if now is None or handle.uid in manifest.operators:
            continue
        if handle.uid not in found or (handle.tables and not found[handle.uid].parts):
            found[handle.uid] = _description(store, handle, now)
    return found


def _description(store: CheckpointStore, handle: StateHandle, now: StateDescription) -> StateDescription:
    """The description of one state. Where the files don't tell, it says what the program says now."""
    partly = structs.replace(now, is_whole=False, has_timers=False, windows=_windows(handle, now))
    if not handle.tables:
        return partly
    try:
        schema = _schema(store, handle.tables[0])
        key, value = schema.field("key").type, _value_type(schema)
    except (OSError, KeyError, pa.ArrowException):
        return partly
    if now.kind in ("reduce", "window reduce"):
        parts: tuple[StatePart, ...] = (StatePart(RECORD, "", type_text(value)),)
    else:
        parts = tuple(StatePart(f.name, "", type_text(f.type)) for f in value)
    keys = tuple(KeyColumn(f.name, type_text(f.type)) for f in key)
    return structs.replace(partly, table=handle.tables[0].name, keys=keys, parts=parts)


def _windows(handle: StateHandle, now: StateDescription) -> Windows | None:
    lengths = handle.meta.get("window")
    return now.windows if lengths is None else Windows("", *lengths)


def _value_type(schema: pa.Schema) -> pa.DataType:
    names = [name for name in ("value", "state") if name in schema.names]
    return schema.field(names[0]).type if names else pa.struct([])


def _schema(store: CheckpointStore, table: TableFile) -> pa.Schema:
    with store.open(table.path) as file:
        file.seek(table.offset)
        return pa.ipc.open_stream(file).schema
