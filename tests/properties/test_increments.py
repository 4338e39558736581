"""Snapshots that build on each other hold what whole ones would, whatever became of those in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from onceflow.runtime.checkpoint import increments
from onceflow.runtime.checkpoint.copies import COPY_BYTES_MAX
from onceflow.runtime.checkpoint.manifest import StateHandle, TableFile
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import Indices
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.heap.heap_groups import HeapGroups
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.increments import FrozenIncrement, Increments
from onceflow.runtime.state.operator_state import FrozenState
from onceflow.runtime.state.overflow import NO_ROWS, GroupedOverflow, GroupsInMemory, Overflow
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.state.rocks.went import Went
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import Layout
from onceflow.runtime.testing.conformance.tables import Numbers
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import tight_rocksdb

MAX_PARALLELISM = 16
ALL = (0, (1 << 64) - 1)
KEYS = range(160)
SCHEMA = pa.schema([("user", pa.int64())])
Place = tuple[int, int]
"""A user and a start."""

OPTIONS = SnapshotOptions(True, whole_rows_max=0)
SOME = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([0, 10])), max_size=6)


@dataclass(frozen=True)
class Kind:
    has_starts: bool = False
    is_on_disk: bool = False
    is_grouped: bool = False
    """Whether a key has a row for each start, and its rows are found by it alone."""


class Kept:
    """A table with a number in each row, whose snapshots build on each other."""

    def __init__(self, kind: Kind, stack: ExitStack) -> None:
        self.kind = kind
        self.column = Numbers()
        layout = Layout(["user"], SCHEMA, {"value": self.column}, "start" if kind.has_starts else None)
        self.table = HeapTable(layout)
        self.table.build_on_snapshots(range(MAX_PARALLELISM), MAX_PARALLELISM, OPTIONS)
        self.overflow: Overflow | None = None
        if kind.is_on_disk:
            self.overflow = stack.enter_context(tight_rocksdb(20)).overflow(self.table, layout)
            assert self.overflow is not None
            stack.callback(self.overflow.close)

    def rows(self, places: list[Place]) -> Indices:
        batch = pa.record_batch([pa.array([user for user, _ in places], pa.int64())], SCHEMA)
        hashes = hash_keys(batch, ["user"])
        if self.overflow is not None:
            return self.overflow.find_or_add(batch, hashes)
        starts = np.array([start for _, start in places], np.int64) if self.kind.has_starts else None
        return self.table.find_or_add(batch, hashes, starts)

    def put(self, places: list[Place], values: list[int]) -> None:
        for row, value in zip(self.rows(places).tolist(), values, strict=True):
            self.column.values[row] = value

    def remove(self, places: list[Place]) -> None:
        rows = np.unique(self.rows(places))
        if self.overflow is not None:
            self.overflow.remove(rows)
            self.overflow.make_room(NO_ROWS, {}, NO_ROWS)  # which renumbers: they may come again
        else:
            self.table.remove(rows)
            self.table.renumber()

    def make_room(self, do_all_go: bool) -> None:
        assert self.overflow is not None
        going = self.table.live_rows().all() if do_all_go else self.overflow.going()
        self.overflow.make_room(going, {}, NO_ROWS)

    def frozen(self) -> FrozenIncrement:
        source = self.table if self.overflow is None else self.overflow
        frozen = source.freeze(MAX_PARALLELISM)
        assert isinstance(frozen, FrozenIncrement)
        return frozen


class KeptGroups:
    """The same with any number of rows for a user, which are found by the user."""

    def __init__(self, kind: Kind, stack: ExitStack) -> None:
        self.start, self.column = Numbers(), Numbers()
        layout = Layout(["user"], SCHEMA, {"start": self.start, "value": self.column})
        self.table = HeapGroups(layout)
        self.table.build_on_snapshots(range(MAX_PARALLELISM), MAX_PARALLELISM, OPTIONS)
        self.overflow: GroupedOverflow = GroupsInMemory(self.table)
        if kind.is_on_disk:
            backend = stack.enter_context(tight_rocksdb(20))
            self.overflow = backend.grouped_overflow(self.table, list(layout.columns))
            stack.callback(self.overflow.close)

    def row(self, place: Place) -> Indices:
        """The row that is there, or none."""
        batch = pa.record_batch([pa.array([place[0]], pa.int64())], SCHEMA)
        self.key = self.overflow.find_keys(batch, hash_keys(batch, ["user"]))
        rows = self.table.rows_of_keys(self.key)
        return rows[[self.start.values[row] == place[1] for row in rows.tolist()]]

    def put(self, places: list[Place], values: list[int]) -> None:
        for place, value in zip(places, values, strict=True):
            rows = self.row(place)
            if not len(rows):
                rows = self.table.add(self.key)
            [row] = rows.tolist()
            self.start.values[row], self.column.values[row] = place[1], value

    def remove(self, places: list[Place]) -> None:
        for place in places:
            self.table.remove(self.row(place))
        self.overflow.compact()

    def make_room(self, do_all_go: bool) -> None:
        going = self.table.live_keys().all() if do_all_go else self.overflow.going()
        self.overflow.make_room(going, {})

    def frozen(self) -> FrozenIncrement:
        frozen = self.overflow.freeze(MAX_PARALLELISM)
        assert isinstance(frozen, FrozenIncrement)
        return frozen


class Writes(RuleBasedStateMachine):
    """`late`: a snapshot that is written after the next one was made, or never."""

    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.kept = (KeptGroups if self.kind.is_grouped else Kept)(self.kind, self.stack)
        self.files = StateFiles(MemoryStore(), 1)
        self.model: dict[Place, int] = {}
        self.late: tuple[int, FrozenIncrement, dict[Place, int]] | None = None
        self.number = 0
        self.put([(user, 0) for user in KEYS])
        self.snapshot()

    def teardown(self) -> None:
        self.stack.close()

    def places(self, places: list[Place]) -> list[Place]:
        return places if self.kind.has_starts else [(user, 0) for user, _ in places]

    @rule(places=SOME)
    def put(self, places: list[Place]) -> None:
        places = self.places(places)
        values = [self.number * 1000 + n for n in range(len(places))]
        self.number += 1
        self.put_last = places
        self.kept.put(places, values)
        self.model.update(zip(places, values, strict=True))

    @rule(places=SOME)
    def remove(self, places: list[Place]) -> None:
        places = [place for place in dict.fromkeys(self.places(places)) if place in self.model]
        if places:
            self.kept.remove(places)
            for place in places:
                del self.model[place]

    @rule()
    def remove_what_was_put_last(self) -> None:
        self.remove(self.put_last)

    @precondition(lambda self: self.kind.is_on_disk)
    @rule(do_all_go=st.booleans())
    def make_room(self, do_all_go: bool) -> None:
        self.kept.make_room(do_all_go)

    @rule()
    def snapshot(self) -> None:
        self.late = None
        self.number += 1
        self.check(self.number, self.kept.frozen(), dict(self.model))

    @rule()
    def slow_or_failed_snapshot(self) -> None:
        self.number += 1
        self.late = self.number, self.kept.frozen(), dict(self.model)

    @precondition(lambda self: self.late is not None)
    @rule()
    def snapshot_before_the_late_one(self) -> None:
        assert self.late is not None
        self.number += 1
        now = self.number, self.kept.frozen(), dict(self.model)
        self.check(*self.late)
        self.late = None
        self.check(*now)

    def check(self, checkpoint_id: int, frozen: FrozenIncrement, model: dict[Place, int]) -> None:
        state = FrozenState(range(MAX_PARALLELISM), {"t": frozen})
        handle = self.files.write(checkpoint_id, "op", 0, state)
        assert handle.rows.get("t", 0) == len(model)
        for first, end in pairwise([0, 5, MAX_PARALLELISM]):
            found = self.content(handle, range(first, end))
            assert found.items() <= model.items()
            model = {place: value for place, value in model.items() if place not in found}
        assert model == {}, "not in the snapshot"

    def content(self, handle: StateHandle, key_groups: range) -> dict[Place, int]:
        rows = [row for b in self.files.read(handle, key_groups).batches("t") for row in b.to_pylist()]
        found = {(row["key"]["user"], row.get("start", 0)): row.get("value") for row in rows}
        assert len(found) == len(rows), "no row twice"
        return found


def check(kind: Kind, **chosen: Any) -> None:
    play(kind)
    machine = type("WritesOfKind", (Writes,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=chosen.get("max_examples", 40),
            stateful_step_count=chosen.get("steps", 30),
            deadline=None,
            derandomize=chosen.get("derandomize", False),
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def play(kind: Kind) -> None:
    """Rows that go to disk with a change, or are removed behind it, and come back."""
    machine = type("WritesOfKind", (Writes,), {"kind": kind})()
    with machine.stack:
        for places in ([(3, 0), (3, 10), (5, 0)], [(150, 0), (77, 10)]):
            machine.put(places)
            if kind.is_on_disk:
                machine.make_room(do_all_go=True)
            machine.remove_what_was_put_last()
            machine.snapshot()
            machine.put(places)
            if kind.is_on_disk:
                machine.make_room(do_all_go=True)
            machine.snapshot()


KINDS = {
    "keys": Kind(),
    "keys and starts": Kind(has_starts=True),
    "on disk": Kind(is_on_disk=True),
    "groups": Kind(has_starts=True, is_grouped=True),
    "groups on disk": Kind(has_starts=True, is_grouped=True, is_on_disk=True),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_snapshots_that_build_on_each_other_hold_what_whole_ones_would(kind: Kind) -> None:
    check(kind)


def test_what_a_late_snapshot_does_not_build_on_others_may() -> None:
    """It is whole, and the next one builds on the one before both."""
    machine = type("WritesOfKeys", (Writes,), {"kind": Kind()})()
    most = [(user, 0) for user in KEYS[:100]]
    machine.put(most)
    machine.slow_or_failed_snapshot()
    assert machine.late[1].increment.is_whole
    machine.remove(most)
    machine.snapshot_before_the_late_one()
    machine.teardown()


@pytest.mark.parametrize(("rows", "copies"), [(100, 2), (150_000, 0)])
def test_what_builds_on_a_large_file_has_no_copy(rows: int, copies: int) -> None:
    store = MemoryStore()
    files, kept = StateFiles(store, 1), Kept(Kind(), ExitStack())
    kept.put([(user, 0) for user in range(rows)], list(range(rows)))
    first = files.write(1, "op", 0, FrozenState(range(MAX_PARALLELISM), {"t": kept.frozen()}))
    assert (first.size > COPY_BYTES_MAX) == (not copies)
    kept.put([(3, 0)], [0])
    second = files.write(2, "op", 0, FrozenState(range(MAX_PARALLELISM), {"t": kept.frozen()}))
    assert len(second.tables) == 2
    assert len(list(store.list("copies"))) == copies


def test_all_rows_of_a_key_are_read_though_they_are_in_several_batches() -> None:
    kept = KeptGroups(Kind(), ExitStack())
    kept.put([(1, 0), (2, 0), (1, 10)], [1, 2, 3])
    old = kept.frozen()
    old.increment.written()
    kept.put([(1, 20)], [4])
    new = kept.frozen()
    files = [
        TableFile("t", name, 0, 0, "", (), covers=covers) for name, covers in (("a", ALL), ("b", (0, 0)))
    ]
    frozen = {files[0]: old, files[1]: new}

    def by_row(file: TableFile) -> Iterator[pa.RecordBatch]:
        rows = frozen[file].rows
        return (rows.piece(n, n + 1) for n in range(len(rows)))

    found = [row["value"] for batch in increments.merged(files, by_row) for row in batch.to_pylist()]
    assert sorted(found) == [1, 2, 3, 4]


def changes_are_forgotten(self: Increments, rows: Indices) -> None:
    """Only rows that are new are noted."""


def nothing_is_gone(self: Increments, identities: Any, key_hashes: Any) -> None:
    """A snapshot does not say what was removed."""


def build_on_the_last(self: Increments, live: Any, hashes: Any, *away: int) -> Any:
    """A snapshot builds on the one before, whether or not that was ever written."""
    made = REAL_NEXT(self, live, hashes, *away)
    self._note_written(made[1].number)
    return made


def drop_all_but(files: Any) -> Any:
    """A snapshot names the newest file and the one before."""
    return REAL_NEEDED(files)[-2:]


def oldest_wins(identities: Any, newer: Any, covered: Any) -> Any:
    """What is in a newer file counts for nothing."""
    return ~covered.hold(identities[0])


def unnoted(self: RocksUnits, units: Indices, counts: Any) -> None:
    """A row that goes with a change which no snapshot has is not remembered."""
    went, self._went = self._went, Went()
    REAL_WRITE(self, units, counts)
    self._went = went


def unforgotten(self: RocksUnits, units: Indices, *identities: Any) -> None:
    """A row that went with a change which no snapshot has is looked for though it was removed since."""
    went, self._went = self._went, Went()
    REAL_FORGET(self, units, *identities)
    self._went = went


def undeleted(self: RocksGroups, identities: Any) -> None:
    """What RocksDB has of a key that has no rows any more stays there."""
    if (kept := self._table.kept_keys) is not None:
        self._keep(kept)


def first_row(content: bytes) -> Any:
    """One of the rows of a key that are one on disk."""
    return REAL_SPLIT(content)[:1]


REAL_SPLIT = RocksGroups.split
REAL_NEXT, REAL_NEEDED = Increments.next, increments.needed
REAL_WRITE, REAL_FORGET = RocksUnits._write, RocksUnits._forget
MUTANTS = (
    (Mutant("changes are forgotten", [(Increments, "note", changes_are_forgotten)]), Kind()),
    (Mutant("nothing is gone", [(Increments, "remove", nothing_is_gone)]), Kind(has_starts=True)),
    (Mutant("built on what was never written", [(Increments, "next", build_on_the_last)]), Kind()),
    (Mutant("files are dropped that are needed", [(increments, "needed", drop_all_but)]), Kind()),
    (Mutant("an old row wins", [(increments, "_newest", oldest_wins)]), Kind()),
    (
        Mutant("changes that went to disk are lost", [(RocksUnits, "_write", unnoted)]),
        Kind(is_on_disk=True),
    ),
    (
        Mutant("rows that are gone from disk are counted", [(RocksUnits, "_forget", unforgotten)]),
        Kind(is_on_disk=True),
    ),
    (
        Mutant("a key that went with a change is lost", [(RocksUnits, "_write", unnoted)]),
        Kind(has_starts=True, is_grouped=True, is_on_disk=True),
    ),
    (
        Mutant("a key whose rows are gone comes back from disk", [(RocksGroups, "_renumbered", undeleted)]),
        Kind(has_starts=True, is_grouped=True, is_on_disk=True),
    ),
    (
        Mutant("of a key one row comes back", [(RocksGroups, "split", staticmethod(first_row))]),
        Kind(has_starts=True, is_grouped=True, is_on_disk=True),
    ),
    (
        Mutant("a key without rows is in earlier snapshots", [(Increments, "remove", nothing_is_gone)]),
        Kind(has_starts=True, is_grouped=True),
    ),
)


TOLD_BY_THE_CODE: dict[str, tuple[type[Exception], str]] = {
    "built on what was never written": (KeyError, "^[0-9]+\n"),  # the checkpoint that it builds on
    "rows that are gone from disk are counted": (Retryable, "RocksDB gave [0-9]+ rows of [0-9]+"),
}
"""The code refuses by itself what these mutants make; the others come to other rows than the model has."""


@pytest.mark.parametrize(("mutant", "kind"), MUTANTS, ids=[mutant.title for mutant, _ in MUTANTS])
def test_mutant_is_killed(mutant: Mutant, kind: Kind) -> None:
    error, told = TOLD_BY_THE_CODE.get(mutant.title, (AssertionError, ""))
    with mutated(mutant), pytest.raises(error, match=told):
        check(kind, max_examples=200, derandomize=True)
