"""Whatever an operator has in a snapshot, read_state's tables have exactly the rows of a naive model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.checkpoint import state_files
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state_tables import reader, shapes, stored_counts
from onceflow.runtime.state_tables.reader import StoredState
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from tests.properties.test_keyed_process import Model, Op, create, moves

MAX_PARALLELISM = 8
Row = tuple[Any, ...]


class Kept:
    """An operator whose snapshots are written to files, and read as tables."""

    def __init__(
        self, create: Any, keys: list[str], state: StateBackend, described: StateDescription
    ) -> None:
        self._create, self._keys, self._state, self._described = create, keys, state, described
        self.harness = self._opened(2, None)

    def _opened(self, parallelism: int, states: Any) -> OperatorHarness:
        made = OperatorHarness(
            self._create, self._keys, parallelism, MAX_PARALLELISM, states=states, state=self._state
        )
        self._files = made._files or StateFiles(MemoryStore(), 1)
        return made

    def restore(self, parallelism: int) -> None:
        states = self.harness.snapshot()
        self.harness.close()
        self.harness = self._opened(parallelism, states)

    def stored(self) -> StoredState:
        handles: list[StateHandle] = []
        for subtask, operator in enumerate(self.harness.subtasks):
            frozen = operator.snapshot()
            assert frozen is not None
            handles.append(self._files.write(1000, "operator", subtask, frozen))
        described = {"operator": self._described}
        parallelism = len(handles)
        manifest = CheckpointManifest(
            "job", "lineage", 1, 1, 0, 0, parallelism, MAX_PARALLELISM, handles, operators=described
        )
        return StoredState(self._files._store, manifest, "a test")


def check(stored: StoredState, state: str, expected: list[Row], key_columns: int) -> None:
    """All rows, those of each key, and those of each part; in no order."""
    table = stored.table("operator", state)
    everything = rows_of(table.read())
    assert everything == sorted(expected, key=repr)
    parts = [batch for part in range(table.parts) for batch in table.batches(part=part)]
    assert rows_of(pa.Table.from_batches(parts, table.schema)) == everything
    names = table.key_columns.names
    by_key: dict[Row, list[Row]] = defaultdict(list)
    for row in expected:
        by_key[row[:key_columns]].append(row)
    for key, mine in by_key.items():
        assert rows_of(table.read([dict(zip(names, key, strict=True))])) == sorted(mine, key=repr)
    some = [dict(zip(names, key, strict=True)) for key in [*by_key][:3]]
    assert table.read(some).num_rows == sum(len(by_key[key]) for key in [*by_key][:3])


def rows_of(table: pa.Table) -> list[Row]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


# --- Process functions ----------------------------------------------------------------------------

FORGOTTEN: Any = [[Op("a", 0, "put", 1, 10), Op("b", 1, "add", 3, 10)], [Op("a", 0, "remove", 1, 10)]]
ITEMS: Any = [
    [Op("a", 1, "append", n, 10) for n in range(3)],
    ("restore", 3),
    [Op("a", 1, "timer", 3, 9)],
    ("restore", 1),
    *([Op(user, 0, "append", n, 10)] for n, user in enumerate("bcaba")),
]


def check_process(program: Any, state: StateBackend) -> None:
    model = Model()
    kept = Kept(create, ["user", "shard"], state, create()._config.description)
    for move in program:
        if isinstance(move, int):
            if move >= model.watermark:
                kept.harness.advance(move)
                model.advance(move)
        elif isinstance(move, list):
            kept.harness.push(batch_from_records(move, arrow_schema(Op)), [op.ts for op in move])
            for op in move:
                model.process(op)
        else:
            kept.restore(move[1])
    stored, keys = kept.stored(), model.keys
    check(stored, "value", [(*k, of.value) for k, of in keys.items() if of.value is not None], 2)
    check(stored, "entries", [(*k, *entry) for k, of in keys.items() for entry in of.entries.items()], 2)
    check(stored, "items", [(*k, *item) for k, of in keys.items() for item in enumerate(of.items)], 2)
    check(stored, "timers", [(*k, t, "event") for k, of in keys.items() for t in of.timers], 2)
    check_counts(stored, model)
    kept.harness.close()


def check_counts(stored: StoredState, model: Model) -> None:
    """From headers, where they tell: the same as from the rows, and as the model has it."""
    everything = model.keys.values()
    expected = {
        "value": (sum(of.value is not None for of in everything), None),
        "entries": (sum(bool(of.entries) for of in everything), sum(len(of.entries) for of in everything)),
        "items": (sum(bool(of.items) for of in everything), sum(len(of.items) for of in everything)),
    }
    for is_read in (False, True):
        (found,) = stored_counts.counted(stored._store, stored._manifest, is_read)
        if found.not_counted:
            assert not is_read
            assert any(len(handle.files["keys"]) > 1 for handle in stored._manifest.states)
            continue
        assert {part.name: (part.rows, part.items) for part in found.parts} == expected
        assert (found.event_timers, found.processing_timers) == (sum(len(of.timers) for of in everything), 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(moves, max_size=12))
@example(ITEMS)
def test_a_process_function_on_heap(program: Any) -> None:
    check_process(program, UNLIMITED)


@settings(max_examples=30, deadline=None)
@given(st.lists(moves, max_size=12))
@example(FORGOTTEN)
def test_a_process_function_with_increments(program: Any) -> None:
    check_process(program, INCREMENTAL)


@settings(max_examples=12, deadline=None)
@given(st.lists(moves, max_size=12))
@example(FORGOTTEN)
def test_a_process_function_in_rocksdb(program: Any) -> None:
    with tight_rocksdb() as state:
        check_process(program, state)


# --- Windows --------------------------------------------------------------------------------------

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
WINDOW = WindowAggregate("operator", ("user",), Tumbling(10), {"n": count(), "total": sum_("amount")}, SCHEMA)
ROW = st.tuples(st.integers(0, 60), st.sampled_from(["", "a", "ä", None]), st.integers(-5, 5))
STEP = st.one_of(
    st.lists(ROW, max_size=10), st.integers(0, 70), st.tuples(st.just("restore"), st.integers(1, 4))
)
CHANGED: Any = [[(5, "a", 1), (25, "a", 2), (25, None, 2)], 12, [(26, "a", 4)]]


def check_windows(program: Any, state: StateBackend) -> None:
    model: dict[tuple[str | None, int], tuple[int, int]] = {}
    kept, watermark = Kept(WINDOW.create, ["user"], state, WINDOW.description), -1
    for step in program:
        if isinstance(step, int):
            watermark = max(watermark, step)
            kept.harness.advance(watermark)
            model = {place: of for place, of in model.items() if place[1] + 9 > watermark}
        elif isinstance(step, list):
            columns = {"user": [row[1] for row in step], "amount": [row[2] for row in step]}
            kept.harness.push(pa.RecordBatch.from_pydict(columns, SCHEMA), [row[0] for row in step])
            for time, user, amount in step:
                start = time // 10 * 10
                if start + 9 > watermark:
                    n, total = model.get((user, start), (0, 0))
                    model[user, start] = n + 1, total + amount
        else:
            kept.restore(step[1])
    rows: list[Row] = [(*place, value_of(n, total)) for place, (n, total) in model.items()]
    check(kept.stored(), "windows", rows, 1)
    kept.harness.close()


def value_of(n: int, total: int) -> Mapping[str, int]:
    return {"n": n, "total": total}


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=10))
@example(CHANGED)
def test_windows_on_heap(program: Any) -> None:
    check_windows(program, UNLIMITED)


@settings(max_examples=30, deadline=None)
@given(st.lists(STEP, max_size=10))
@example(CHANGED)
def test_windows_with_increments(program: Any) -> None:
    check_windows(program, INCREMENTAL)


@settings(max_examples=12, deadline=None)
@given(st.lists(STEP, max_size=10))
@example(CHANGED)
def test_windows_in_rocksdb(program: Any) -> None:
    with tight_rocksdb() as state:
        check_windows(program, state)


# --- Mutants --------------------------------------------------------------------------------------


def one_after_the_other(files: Any, read: Any) -> Any:
    return (batch for file in files if not file.is_removal for batch in read(file))


def first_group_only(handle: Any, table: str, chosen: Any) -> Any:
    return (
        handle.key_groups if chosen is None else range(handle.key_groups_start, handle.key_groups_start + 1)
    )


def read_as_sums(files: Any, handle: Any, table: str, wanted: Any) -> Any:
    each = [stored_counts.places_and_nulls(files._store, file) for file in handle.files[table]]
    return {p: tuple(map(sum, zip(*(of[p] for of in each), strict=True))) for p in each[0]}


MUTANTS = [
    (Mutant("counts of increments are added up", [(stored_counts, "_read", read_as_sums)]), False),
    (Mutant("earlier rows are read as well", [(state_files, "merged", one_after_the_other)]), True),
    (Mutant("other key groups are read", [(reader, "_groups", first_group_only)]), True),
    (
        Mutant("elements of a list have no place", [(shapes, "_places", lambda rows: pa.array(rows * 0))]),
        False,
    ),
]


@pytest.mark.parametrize(("mutant", "is_of_windows"), MUTANTS, ids=lambda each: getattr(each, "title", ""))
def test_a_reader_that_is_wrong_is_found(mutant: Mutant, is_of_windows: bool) -> None:
    check = partial(check_windows, CHANGED) if is_of_windows else partial(check_process, ITEMS)
    check(INCREMENTAL)
    with mutated(mutant), pytest.raises(AssertionError):
        check(INCREMENTAL)
