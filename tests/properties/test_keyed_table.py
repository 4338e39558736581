"""Every KeyedTable against a dictionary: what is found, added, set, emptied, removed, fired, restored."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from onceflow.runtime.kernels.ops import Ops, ops_here, using
from onceflow.runtime.state.heap.heap_panes import HeapPanes
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.operator_state import of_key_groups
from onceflow.runtime.state.table import NOT_THERE
from onceflow.runtime.testing.conformance.tables import (
    MAX_PARALLELISM,
    Driven,
    Place,
    TableUnderTest,
    pieces_of,
)
from onceflow.runtime.testing.mutation import Mutant, mutated

KEYS = st.tuples(st.sampled_from(["", "a", "b", None, "ä" * 30]), st.sampled_from([0, 1, -1, None]))
STARTS = st.sampled_from([-10, 0, 10, 20, 70_000])
PLACES = st.lists(st.tuples(KEYS, STARTS), max_size=25)


class TableAgainstDictionary(RuleBasedStateMachine):
    """`model` has what the table must have, in the order in which it came. What was removed does not come
    back before `compact`: so says the protocol."""

    case: TableUnderTest

    def __init__(self) -> None:
        super().__init__()
        self.driven = Driven(self.case)
        self.model: dict[Place, int | None] = {}
        self.gone: set[Place] = set()
        self.values = 0

    def fitting(self, places: list[Place]) -> list[Place]:
        if not self.case.has_starts:
            places = [(key, 0) for key, _ in places]
        return [place for place in places if place not in self.gone]

    def rows(self, places: list[Place]) -> np.ndarray[Any, Any]:
        found = self.driven.find(places)
        assert NOT_THERE not in found
        return np.array(found, np.int64)

    @rule(places=PLACES)
    def put(self, places: list[Place]) -> None:
        places = self.fitting(places)
        values = [self.values + n for n in range(len(places))]
        self.values += len(places)
        rows = self.driven.put(places, values)
        assert self.driven.places(rows) == places
        self.model.update(zip(places, values, strict=True))

    @rule(places=PLACES)
    def find(self, places: list[Place]) -> None:
        places = self.fitting(places)
        rows = self.driven.find(places)
        assert [row != NOT_THERE for row in rows] == [place in self.model for place in places]
        there = [(row, place) for row, place in zip(rows, places, strict=True) if row != NOT_THERE]
        assert self.driven.places(row for row, _ in there) == [place for _, place in there]
        assert [self.driven.column.values[row] for row, _ in there] == [
            self.model[place] for _, place in there
        ]

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        places = self.some(data)
        self.driven.table.remove(self.rows(places))
        for place in places:
            del self.model[place]
        self.gone.update(places)

    @rule(data=st.data())
    def reset(self, data: st.DataObject) -> None:
        places = self.some(data)
        self.driven.table.reset(self.rows(places))
        self.model.update(dict.fromkeys(places))

    @precondition(lambda self: self.case.has_starts)
    @rule(limit=st.sampled_from([-11, -10, 5, 10, 20, 80_000]), count=st.integers(1, 9))
    def fire(self, limit: int, count: int) -> None:
        order = list(self.model)
        expected = sorted((place for place in order if place[1] <= limit), key=lambda place: place[1])
        pieces = self.driven.due(limit, count)
        fired = [row for piece in pieces for row, _ in piece]
        assert self.driven.places(fired) == expected
        for place in expected:
            del self.model[place]
        self.gone.update(expected)

    @rule()
    def compact(self) -> None:
        if self.driven.table.compact() is not None:
            self.gone.clear()
            assert self.driven.table.size == len(self.model)

    @rule(cuts=st.lists(st.integers(0, MAX_PARALLELISM), max_size=3), piece=st.integers(1, 7))
    def restore(self, cuts: list[int], piece: int) -> None:
        """Load a snapshot, cut by key groups, into another table, which is this one from then on."""
        frozen, fresh = self.driven.table.freeze(MAX_PARALLELISM), Driven(self.case)
        bounds = [0, *sorted(cuts), MAX_PARALLELISM]
        for first, end in pairwise(bounds):
            for batch in of_key_groups(pieces_of(frozen, piece), range(first, end)):
                fresh.table.load(batch)
        self.driven = fresh
        self.gone.clear()
        order = self.driven.places(range(len(self.model)))
        self.model = {place: self.model[place] for place in order}

    def some(self, data: st.DataObject) -> list[Place]:
        if not self.model:
            return []
        chosen = st.lists(st.sampled_from(sorted(self.model, key=repr)), unique=True, max_size=20)
        places: list[Place] = data.draw(chosen)
        return places

    @invariant()
    def agrees(self) -> None:
        assert len(self.driven.table) == len(self.model)
        assert len(self.driven.column.values) == self.driven.table.size
        assert self.driven.content() == self.model


def machine(case: TableUnderTest) -> type[TableAgainstDictionary]:
    return type("TableAgainstDictionary", (TableAgainstDictionary,), {"case": case})


CASES = {
    f"{kind}, {chosen}": (chosen, TableUnderTest(table, has_starts))
    for chosen in ops_here()
    for kind, table, has_starts in (
        ("keys", HeapTable, False),
        ("keys and starts", HeapTable, True),
        ("panes", HeapPanes, True),
    )
}


@pytest.mark.parametrize(("chosen", "case"), CASES.values(), ids=CASES)
def test_a_table_is_a_dictionary(chosen: Ops, case: TableUnderTest) -> None:
    with using(chosen):
        run_state_machine_as_test(
            machine(case), settings=settings(max_examples=30, stateful_step_count=15, deadline=None)
        )


def _start_and_key_swapped(self: HeapTable, rows: Any) -> Any:
    return self._start.used().take(rows[::-1])


def _keeps_all_columns_but_starts(self: HeapTable) -> Any:
    if not self._index.is_sparse:
        return None
    kept = self._index.compact()
    self._keys.keep(kept)
    for column in self._columns.values():
        column.keep(kept)
    self._start._size = len(kept)
    return kept


MUTANTS = (
    Mutant("starts are read in another order", [(HeapTable, "starts", _start_and_key_swapped)]),
    Mutant("starts are not renumbered", [(HeapTable, "compact", _keeps_all_columns_but_starts)]),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_a_table_that_is_no_dictionary_is_found(mutant: Mutant) -> None:
    chosen = settings(
        max_examples=100, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    plain, case = CASES["keys and starts, plain"]
    with mutated(mutant), using(plain), pytest.raises(AssertionError):
        run_state_machine_as_test(machine(case), settings=chosen)


def test_rows_that_have_changed_are_told_once() -> None:
    case = TableUnderTest(lambda layout: HeapTable(layout, tracks_changes=True), has_starts=False)
    driven = Driven(case)
    table = driven.table
    assert isinstance(table, HeapTable)
    places: list[Place] = [((f"k{n}", n), 0) for n in range(10)]
    driven.put(places, list(range(10)))
    assert table.take_changed().tolist() == list(range(10))
    assert table.take_changed().tolist() == []
    driven.find(places[:3])
    driven.put([places[4], places[2], places[4]], [0, 0, 0])
    table.reset(np.array([7]))
    table.note_changed(np.array([8]))
    assert table.take_changed().tolist() == [2, 4, 7, 8]
    driven.put(places[5:7], [0, 0])
    table.remove(np.array([0, 1, 2, 3, 4, 6]))
    assert table.compact() is not None
    assert table.take_changed().tolist() == [0], "renumbered, and without what was removed"
