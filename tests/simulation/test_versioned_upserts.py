"""The commits of a sink that upserts into a store without transactions: whatever is killed, lost, late, done
twice or for some rows only, what is seen is of durable checkpoints, no key goes back, and at the end each key
has its last row.

A job of one or two subtasks writes checkpoints with several rows of a key, and deletes; a restart begins a
new attempt, at another parallelism, from the last durable checkpoint, an older one, or in a new checkpoint
folder from the beginning; writers of old attempts go on as zombies.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.connectors.versioned_upserts.backend import Answer, Piece
from onceflow.connectors.versioned_upserts.delivery import Delivery, Limits
from onceflow.connectors.versioned_upserts.last_rows import LastRows
from onceflow.connectors.versioned_upserts.ledger import Writer
from onceflow.connectors.versioned_upserts.target import Upserts, VersionedTarget
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.records import RowKind
from tests.simulated_store import CrashError, Inline, SimulatedBackend, SimulatedStore

SEEDS, CHECKPOINTS, KEYS = 150, 6, 5
Row = tuple[int, int, int]
"""Key, value and kind. Values grow with the checkpoints that were ever taken."""


class Eager:
    """A Patience that waits for nothing."""

    def wait(self, error: OnceflowError) -> None: ...

    def reset(self) -> None: ...


@dataclass
class Promise:
    """A durable checkpoint: the rows of each owner, and what its ledger said when it was taken."""

    checkpoint_id: int = 0
    rows: dict[str, list[Row]] = field(default_factory=dict)
    ledgers: dict[str, int | None] = field(default_factory=dict)


class Job:
    def __init__(self, seed: int, compares: str, target: type[VersionedTarget]) -> None:
        self._random = random.Random(seed)
        self._target = target
        self.store = SimulatedStore(self._random.randrange, compares)
        self.durable = [Promise()]
        self.lineage, self.attempt, self.attempts = 1, 0, 0
        self.serial = 0
        """How many checkpoints were ever taken: values grow with it."""
        self.zombies: list[tuple[OwnerCommits, int, list[Row]]] = []
        self.seen: dict[str, int] = {}

    def run(self) -> None:
        while not self._is_over():
            self.store.goes_wrong = self.attempts < 25
            self.attempt, self.attempts = self.attempt + 1, self.attempts + 1
            assert self.attempts < 40, "the last row of each key is never there"
            try:
                self._run_attempt()
            except CrashError:
                self._go_back()
        for call in self.store.late:
            call()
        self._check()
        assert self._values() == self._expected(), "the last row of each key, late calls or not"

    def _is_over(self) -> bool:
        return self.durable[-1].checkpoint_id >= CHECKPOINTS and self._values() == self._expected()

    def _go_back(self) -> None:
        """Sometimes, to an older checkpoint or a new folder."""
        chance = self._random.random()
        if chance < 0.1 and len(self.durable) > 1:
            self.durable.pop()
        elif chance < 0.15:
            self.durable, self.attempt, self.lineage = [Promise()], 0, self.lineage + 1
            # Folders don't fence each other: the old job is stopped before. What it has sent may be late.
            self.zombies = []
            if self.store.compares == "notes":
                self.store.late = []
        else:
            return
        self.seen = {}

    def _run_attempt(self) -> None:
        owners = {str(n): self._open(str(n)) for n in range(self._random.choice((1, 2)))}
        try:
            self._recover(owners)
            while self.durable[-1].checkpoint_id < CHECKPOINTS:
                self._next_checkpoint(owners)
        finally:
            last = self.durable[-1]
            self.zombies += [
                (commits, last.checkpoint_id, last.rows[owner])
                for owner, commits in owners.items()
                if last.rows.get(owner)
            ]

    def _recover(self, owners: dict[str, OwnerCommits]) -> None:
        last = self.durable[-1]
        self._let_zombies_try()
        for owner, rows in last.rows.items():
            commits = owners.get(owner) or self._open(owner)
            if owner in owners:
                commits.claim(last.checkpoint_id)
            if rows:
                commits.commit(last.checkpoint_id, lambda rows=rows: batches(rows))  # type: ignore[misc]
        for owner, commits in owners.items():
            if owner not in last.rows:
                commits.claim(last.checkpoint_id)
        self._check()

    def _next_checkpoint(self, owners: dict[str, OwnerCommits]) -> None:
        self._let_zombies_try()
        number = self.durable[-1].checkpoint_id + 1
        self.serial += 1
        rows: dict[str, list[Row]] = {owner: [] for owner in owners}
        for key, value, kind in self._rows(number):
            rows[str(key % len(owners))].append((key, value, kind))
        ledgers = {owner: commits.last_seen for owner, commits in owners.items()}
        self.durable.append(Promise(number, rows, ledgers))
        if self._random.random() < 0.1:
            raise CrashError
        for owner, commits in owners.items():
            if rows[owner]:
                commits.commit(number, lambda rows=rows[owner]: batches(rows))  # type: ignore[misc]
        self._check()

    def _rows(self, number: int) -> Iterator[Row]:
        """The last checkpoint has all keys: after a rewind nothing older is left."""
        keys = range(KEYS) if number == CHECKPOINTS else self._random.choices(range(KEYS), k=6)
        for n, key in enumerate(keys):
            value = 100 * self.serial + n
            if number < CHECKPOINTS and self._random.random() < 0.3:
                yield key, value, RowKind.DELETE
            elif self._random.random() < 0.3:
                yield key, value, RowKind.UPDATE_BEFORE
                yield key, value + 50, RowKind.UPDATE_AFTER
            else:
                yield key, value, RowKind.INSERT

    def _let_zombies_try(self) -> None:
        for commits, number, rows in self.zombies:
            if self._random.random() < 0.1:
                try:
                    commits.commit(number, lambda rows=rows: batches(rows))  # type: ignore[misc]
                except (CrashError, OnceflowError):
                    continue

    def _open(self, owner: str) -> OwnerCommits:
        last = self.durable[-1]
        writer = Writer("job", f"l{self.lineage}", "out", owner, self.attempt, last.checkpoint_id)
        target = self._target(
            SimulatedBackend(self.store), writer, Upserts(["k"], "store", "versions"), Inline()
        )
        return OwnerCommits(owner, target, Eager(), last.ledgers.get(owner))

    def _values(self) -> dict[str, int]:
        return {key: row["v"] for key, row in self.store.visible().items()}

    def _expected(self) -> dict[str, int]:
        there: dict[str, int] = {}
        for promise in self.durable:
            for rows in promise.rows.values():
                for key, value, kind in rows:
                    there.pop(str(key), None)
                    if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                        there[str(key)] = value
        return there

    def _check(self) -> None:
        """No key has a row that is older than what was seen of it, but after going back on purpose."""
        for key, (row, _) in self.store.rows.items():
            if row is not None:
                assert row["v"] >= self.seen.get(key, 0), f"key {key} went back to {row['v']}"
                self.seen[key] = row["v"]


def batches(rows: Sequence[Row]) -> Iterator[pa.RecordBatch]:
    """In batches of two, so that a key's rows come in several."""
    for n in range(0, len(rows), 2):
        keys, values, kinds = zip(*rows[n : n + 2], strict=True)
        yield pa.record_batch({"k": keys, "v": values, KIND: pa.array(kinds, pa.int8())})


def survivors(
    compares: str, target: type[VersionedTarget] = VersionedTarget, seeds: int = SEEDS
) -> Iterator[str]:
    """What went wrong, by seed."""
    for seed in range(seeds):
        try:
            Job(seed, compares, target).run()
        except (AssertionError, OnceflowError) as error:
            yield f"{seed}: {error}"


@pytest.mark.parametrize("compares", ["versions", "notes"])
def test_each_key_has_its_last_row(compares: str) -> None:
    assert list(survivors(compares)) == []


# --- Mutants --------------------------------------------------------------------------------------------


class OneGeneration(VersionedTarget):
    """The checkpoint alone is the version: after going back its numbers begin again below what is there."""

    def claim(self) -> int:
        checkpoint_id = super().claim()
        self._ledger.generation = 1
        return checkpoint_id


class GenerationOfTheOwner(VersionedTarget):
    """Each owner takes a generation of its own: a key that moves to another owner may get a lower one."""

    def __init__(self, backend: SimulatedBackend, writer: Writer, *others: Any) -> None:
        super().__init__(backend, writer, *others)
        self._ledger._sink += f" {writer.owner}"


class LedgerFirst(VersionedTarget):
    """The ledger says that the rows are there before they are."""

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        if self._begun is None:
            self._ledger.advance(checkpoint_id)
        super().commit(checkpoint_id, rows)


class AllRows(VersionedTarget):
    """All rows of a key are written, with one version, and not its last one only."""

    def _delivery(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> Delivery:
        pieces = [piece for batch in rows for piece in LastRows(["k"], [batch]).pieces()]
        return Delivery(pieces, Limits(3, 1 << 20, 2))


class ForgetsTheBusy(VersionedTarget):
    """What the store had no room for counts as done."""

    def _delivery(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> Delivery:
        return _ForgetfulDelivery(LastRows(["k"], rows).pieces(), Limits(3, 1 << 20, 2))


class _ForgetfulDelivery(Delivery):
    def answered(self, piece: Piece, answer: Answer) -> None:
        super().answered(piece, Answer(bad=answer.bad))


@pytest.mark.parametrize(
    ("target", "compares"),
    [
        (OneGeneration, "versions"),
        (GenerationOfTheOwner, "versions"),
        (LedgerFirst, "versions"),
        (LedgerFirst, "notes"),
        (AllRows, "versions"),
        (ForgetsTheBusy, "versions"),
        (ForgetsTheBusy, "notes"),
        (VersionedTarget, "nothing"),
    ],
)
def test_a_mutant_is_killed(target: type[VersionedTarget], compares: str) -> None:
    assert next(survivors(compares, target), None), "rows are lost, or older ones come back"
