"""The heap's tables do what a KeyedTable must, with kernels and without. A heap that does not is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceflow.runtime.kernels.ops import Ops, ops_here, using
from onceflow.runtime.state.heap import heap_panes, heap_table
from onceflow.runtime.state.heap.frozen import FrozenTable
from onceflow.runtime.state.heap.heap_panes import HeapPanes
from onceflow.runtime.state.heap.heap_table import FrozenKeysAndStarts, HeapTable
from onceflow.runtime.state.heap.key_index import KeyIndex
from onceflow.runtime.testing.conformance import TABLE_CHECKS, TableUnderTest
from onceflow.runtime.testing.mutation import Mutant, mutated

KINDS = (("keys", HeapTable, False), ("keys and starts", HeapTable, True), ("panes", HeapPanes, True))
TABLES = {
    f"{kind}, {chosen}": (chosen, TableUnderTest(table, has_starts))
    for chosen in ops_here()
    for kind, table, has_starts in KINDS
}


@pytest.mark.parametrize("check", TABLE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(("chosen", "case"), TABLES.values(), ids=TABLES)
def test_table(chosen: Ops, case: TableUnderTest, check: Callable[[TableUnderTest], None]) -> None:
    with using(chosen):
        check(case)


def _without(name: str) -> Any:
    """A column's method that does nothing."""

    def nothing(self: Any, *_: Any) -> None:
        pass

    return nothing


def _due_of_all(self: HeapTable, limit: int) -> Any:
    return _table_due(self, 1 << 60)


def _due_without_the_others(self: HeapTable, limit: int) -> Any:
    due = _table_due(self, limit)
    self._earliest = None
    return due


def _due_unsorted(self: HeapTable, limit: int) -> Any:
    rows, self._earliest = self._index.split(self._start.used(), limit)
    return heap_table.Due(rows, self.starts(rows)) if len(rows) else None


def _compact_keys_only(self: Any) -> Any:
    return self._index.compact() if self._index.is_sparse else None


def _find_also_removed(self: KeyIndex, hashes: Any, checks: Any) -> Any:
    return self._places.find(self._keys.used(), hashes, checks)


def _piece_of_all(self: FrozenTable, first: int, end: int) -> Any:
    return _piece(self, first, end + 1)


def _groups_of_key_and_start(self: FrozenKeysAndStarts, rows: Any, max_parallelism: int) -> Any:
    return heap_table.key_groups_of(self._hashes[rows], max_parallelism)


def _remove_from_the_index_only(self: HeapPanes, rows: Any) -> None:
    self._index.remove(rows)


def _added_without_growing(self: Any, *arguments: Any) -> Any:
    columns, self._columns = self._columns, {}
    try:
        return _table_find_or_add(self, *arguments)
    finally:
        self._columns = columns


_table_due, _table_find_or_add, _piece = HeapTable.due, HeapTable.find_or_add, FrozenTable.piece

MUTANTS = (
    Mutant("what was removed is found", [(KeyIndex, "find", _find_also_removed)]),
    Mutant("nothing is removed", [(KeyIndex, "remove", _without("remove"))]),
    Mutant("columns are not renumbered", [(HeapTable, "compact", _compact_keys_only)]),
    Mutant("panes' columns are not renumbered", [(HeapPanes, "compact", _compact_keys_only)]),
    Mutant("columns don't grow", [(HeapTable, "find_or_add", _added_without_growing)]),
    Mutant("a reset resets nothing", [(HeapTable, "reset", _without("reset"))]),
    Mutant("a pane's reset resets nothing", [(HeapPanes, "reset", _without("reset"))]),
    Mutant("all is due", [(HeapTable, "due", _due_of_all)]),
    Mutant("what is due later is forgotten", [(HeapTable, "due", _due_without_the_others)]),
    Mutant("what is due comes as it came", [(HeapTable, "due", _due_unsorted)]),
    Mutant("a start makes no difference", [(heap_table, "with_start", lambda key_hash, _: key_hash)]),
    Mutant("a pane makes no difference", [(heap_panes, "with_start", lambda key_hash, _: key_hash)]),
    Mutant("a start moves a key", [(FrozenKeysAndStarts, "key_groups", _groups_of_key_and_start)]),
    Mutant("a piece is a row too long", [(FrozenTable, "piece", _piece_of_all)]),
    Mutant("columns are not restored", [(heap_table, "load_columns", _without("load"))]),
    Mutant("panes forget none of their rows", [(HeapPanes, "remove", _remove_from_the_index_only)]),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_a_heap_that_is_wrong_is_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises((AssertionError, IndexError, KeyError)):
        check_all()


def check_all() -> None:
    for chosen, case in TABLES.values():
        with using(chosen):
            for check in TABLE_CHECKS:
                check(case)
