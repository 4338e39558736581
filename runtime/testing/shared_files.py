"""Incremental snapshots in the small: files that several checkpoints name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from msgspec import structs

from onceflow.runtime.checkpoint.manifest import StateHandle, meta_as_json
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.operators.operator import FrozenState


class SharedFiles:
    """A state that is as it was is not written again: its file is named again, whatever became of the
    checkpoint that it was written for."""

    def __init__(self, files: StateFiles, key_groups: range, restored: Sequence[StateHandle]) -> None:
        self._files = files
        self._newest: dict[str, tuple[int, StateHandle, Content]] = {}
        """The newest state by uid, with the checkpoint it was written for, or 0 for what was restored."""
        for handle in restored:
            if handle.key_groups == key_groups:
                state = files.read(handle, key_groups)
                content = _content({name: state.batches(name) for name in state.tables})
                self._newest[handle.uid] = (0, handle, content)

    def write(self, checkpoint_id: int, uid: str, subtask: int, state: FrozenState) -> StateHandle:
        content = _content({name: [rows.piece(0, len(rows))] for name, rows in state.tables.items()})
        newest_id, newest, found = self._newest.get(uid, (-1, None, {}))
        if newest is not None and found == content:
            return structs.replace(newest, subtask=subtask, meta_json=meta_as_json(state.meta))
        handle = self._files.write(checkpoint_id, uid, subtask, state)
        if checkpoint_id > newest_id:
            self._newest[uid] = (checkpoint_id, handle, content)
        return handle


Content = dict[str, list[tuple[object, ...]]]


def _content(tables: Mapping[str, Iterable[pa.RecordBatch]]) -> Content:
    """The rows of all tables, without an order."""
    return {
        name: sorted(
            (row for b in batches for row in zip(*(c.to_pylist() for c in b.columns), strict=True)), key=repr
        )
        for name, batches in tables.items()
    }
