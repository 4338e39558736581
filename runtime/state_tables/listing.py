"""Which tables a checkpoint has."""

from __future__ import annotations

from collections.abc import Iterator

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.in_flight import is_in_flight
from onceflow.runtime.state_tables.shapes import BROADCAST, KEYS_TABLE, LISTS_TABLE, TIMERS, Shape
from onceflow.runtime.state_tables.source_offsets import OFFSETS


def shapes_of(manifest: CheckpointManifest) -> list[Shape]:
    """All tables: of operators with state, of what was in flight, and of sources; by uid, in the order in
    which states were declared."""
    shapes = [
        shape for uid, described in manifest.operators.items() for shape in shapes_of_operator(uid, described)
    ]
    known = {(uid, described.table) for uid, described in manifest.operators.items()}
    found = {(handle.uid, name) for handle in manifest.states for name in handle.files}
    for uid, table in sorted(found - known):
        kind = "in flight" if is_in_flight(uid) else "not described"
        shapes.append(Shape(uid, table, kind, table, None))
    shapes += [Shape(uid, OFFSETS, OFFSETS, "", None) for uid in manifest.splits]
    return sorted(shapes, key=lambda shape: shape.uid)


def shapes_of_operator(uid: str, described: StateDescription) -> Iterator[Shape]:
    """The tables of what one operator keeps."""
    if described.table == LISTS_TABLE:
        for part in described.parts:
            kind = f"{part.kind} by {part.codec}" if part.codec else part.kind
            yield Shape(uid, part.name, kind, LISTS_TABLE, described, part)
        return
    if described.table != KEYS_TABLE:
        yield Shape(uid, described.table, described.kind, described.table, described)
        return
    for part in described.parts:
        has_key = part.kind != BROADCAST
        yield Shape(uid, part.name, part.kind, KEYS_TABLE, described if has_key else None, part)
    timers = TIMERS
    while timers in {part.name for part in described.parts}:
        timers += "_"
    yield Shape(uid, timers, TIMERS, KEYS_TABLE, described, is_timers=True)
