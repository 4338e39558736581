"""The state of a job in memory, of the last completed checkpoint, while others ask for keys of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import Int64s
from onceflow.runtime.state_tables.indexed_rows import IndexedRows
from onceflow.runtime.state_tables.reader import StoredState, read_state

Name = tuple[str, str]
"""Operator and state."""


@dataclass(frozen=True)
class View:
    """One checkpoint, and those of its tables that are in memory. It never changes."""

    stored: StoredState
    offsets: Mapping[str, list[dict[str, Any]]]
    tables: Mapping[Name, IndexedRows] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """An answer: all of it is of one checkpoint."""

    checkpoint_id: int
    completed_ms: int
    offsets: Mapping[str, list[dict[str, Any]]]
    """The rows of `offsets` of each source, by its uid."""
    places: Int64s
    """For each row the position of its key among those asked for, ascending."""
    rows: pa.Table


class FollowedState:
    """Answers from the newest completed checkpoint that `refresh` has found. Any thread may ask.

    What is asked for is in one View, which is replaced as a whole when the next one is ready; so no answer
    is of two checkpoints, and their ids never go back.
    """

    def __init__(self, path: str, tables: Iterable[Name] = ()) -> None:
        """`tables`: loaded now, all others when they are first asked for. Raises UsageError if there is no
        checkpoint at this path, or no such table."""
        self._path = path
        self._store = open_store(path)
        self._loading = threading.Lock()
        self._view = _loaded(read_state(path), tables)

    @property
    def view(self) -> View:
        return self._view

    def refresh(self) -> bool:
        """Load a newer checkpoint, if there is one, with the tables that are in memory; whether there was.

        What it raises (an OnceflowError, an OSError) changes nothing: the earlier one goes on to answer.
        """
        with self._loading:
            ids = [manifest.checkpoint_id for _, manifest in read_log(self._store).completed()]
            before = self._view
            if max(ids, default=-1) <= before.stored.checkpoint_id:
                return False
            stored = read_state(self._path)
            try:
                there = {(table.operator, table.state) for table in stored.tables}
                after = _loaded(stored, [name for name in before.tables if name in there])
            except BaseException:
                stored.close()
                raise
            self._view = after
            before.stored.close()
            return True

    def find(self, operator: str, state: str, keys: Iterable[Any]) -> Found:
        """The rows of these keys. Raises UsageError for a key that is none, UnknownTableError for a table
        that is not there."""
        view = self._with_table((operator, state))
        places, rows = view.tables[operator, state].find(keys)
        return Found(view.stored.checkpoint_id, view.stored.completed_ms, view.offsets, places, rows)

    def key_columns(self, operator: str, state: str) -> pa.Schema:
        """The columns of a key, in their order. Raises as `find` does."""
        return self._with_table((operator, state)).tables[operator, state].key_columns

    def close(self) -> None:
        """Let the files of the checkpoint go."""
        self._view.stored.close()

    def _with_table(self, name: Name) -> View:
        if name in (view := self._view).tables:
            return view
        with self._loading:
            view = self._view
            if name not in view.tables:
                view = replace(view, tables={**view.tables, name: _index(view.stored, name)})
                self._view = view
            return view


def _loaded(stored: StoredState, names: Iterable[Name]) -> View:
    return View(stored, stored.offsets, {name: _index(stored, name) for name in names})


def _index(stored: StoredState, name: Name) -> IndexedRows:
    table = stored.table(*name)
    where = f"state {table.state!r} of {table.operator!r}"
    if not table.key_columns.names:
        raise UsageError(f"{where} has no key: read it with onceflow.read_state")
    return IndexedRows(table.read(), table.key_columns, where)
