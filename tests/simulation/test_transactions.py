"""Staged transactions on the fake broker: crashes, lost and late requests and zombies at every step.

Goal: each record under a durable checkpoint becomes visible once, whatever happens. The world runs the
real StagedWriter and OwnerTransactions, attempt after attempt; the checker looks at what a
read_committed reader sees. Each mutant is the protocol with one rule left out: it must fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey
from onceflow.connectors.kafka.testing.fake import (
    NoFaults,
)
from onceflow.connectors.kafka.transactions.ahead import AheadOutput, Output
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.staged_writer import StagedWriter
from onceflow.runtime.contracts import Committable, PreCommit
from onceflow.runtime.errors import Retryable
from onceflow.runtime.testing.choices import ExhaustiveChoices, SeededChoices
from onceflow.runtime.testing.violations import Breach, breaches
from tests.simulation.kafka_sink_world import Rare, World

# --- Mutants ------------------------------------------------------------------------------------


class _ReadsLedgerBeforeInit(OwnerTransactions):
    def _renewed_ledger(self) -> LedgerEntry | None:
        entry = self._client.newest_ledger(self._ledger)
        self._believe(entry)
        self._drop()
        self._producer = self._client.open_producer(self._ledger)
        return entry


class _BelievesAnyCoordinator(OwnerTransactions):
    """One that was replaced says that what it has not seen was not committed."""

    def _renewed_ledger(self) -> LedgerEntry | None:
        self._drop()
        self._producer = self._client.open_producer(self._ledger)
        entry = self._client.read_ledger(self._ledger)
        if self._last_seen is not None and (entry is None or entry.checkpoint_id < self._last_seen):
            raise Retryable("an old answer")
        self._believe(entry)
        return entry


class _IgnoresDoubt(OwnerTransactions):
    def _doubt(self, producer: object) -> str | None:
        return None


class _AsksNoLedger(OwnerTransactions):
    def _committed_before(self) -> int:
        super()._committed_before()
        return -1


class _InitsWithoutReadingAgain(OwnerTransactions):
    def _renewed_ledger(self) -> LedgerEntry | None:
        if self._last_seen is None:
            return super()._renewed_ledger()
        self._drop()
        self._producer = self._client.open_producer(self._ledger)
        return LedgerEntry(self._last_seen, "")


class _WritesNegativeLedger(OwnerTransactions):
    def _transact(self, checkpoint_id: int, *rest: Any) -> None:
        super()._transact(-checkpoint_id - 1, *rest)


class _CommitsWithoutInit(OwnerTransactions):
    """A zombie that is never fenced: one epoch for all attempts."""

    def _renewed_ledger(self) -> LedgerEntry | None:
        self._drop()
        producer = self._client.open_producer(self._ledger)
        producer._epoch = 0  # type: ignore[attr-defined]
        producer._network.broker._transactions[self._ledger.transactional_id].epoch = 0  # type: ignore[attr-defined]
        self._producer = producer
        entry = self._client.newest_ledger(self._ledger)
        self._believe(entry)
        return entry


class _SendsAheadInDoubt(OwnerTransactions):
    """The late commit of the transaction before makes visible what no checkpoint has."""

    def send_ahead(self, outputs: Sequence[AheadOutput]) -> bool:
        self._doubt = lambda producer: None  # type: ignore[method-assign]
        try:
            return super().send_ahead(outputs)
        finally:
            del self._doubt


class _ForgetsWhatItSentAhead(OwnerTransactions):
    def _transact(self, checkpoint_id: int, outputs: Sequence[Output], claimant: Claimant) -> None:
        if self._ahead is not None:
            self._ahead._batches.clear()
        super()._transact(checkpoint_id, outputs, claimant)


def with_transactions(transactions: type[OwnerTransactions]) -> type[StagedWriter]:
    class Writer(StagedWriter):
        def _transactions(self, ledger: LedgerKey, last_seen: int | None) -> OwnerTransactions:
            return transactions(self._client, ledger, self._claimant, self._patience, last_seen)

    return Writer


class _SendsRowsBehindTheBarrierAhead(StagedWriter):
    """What a transaction has can't be taken out of it: it comes with the commit of the rows before."""

    def send_ahead(self) -> bool:
        outputs = [*self._held, self._open]
        ahead = self._own.send_ahead(outputs)
        if self._own._ahead is not None:
            self._own._ahead.is_part_of = lambda outputs: True  # type: ignore[method-assign]
        return ahead


class _DoesNotCommitAgain(StagedWriter):
    def recover(self, committables: Sequence[Committable]) -> None:
        super().recover([])


class _ForgetsAbortedCheckpoints(StagedWriter):
    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self._held = []
        return super().pre_commit(checkpoint_id)


class _CommitsUnderItsOwnName(StagedWriter):
    def recover(self, committables: Sequence[Committable]) -> None:
        mine = {"transactional_id": self._own._ledger.transactional_id}
        super().recover(
            [
                Committable(c.uid, c.owner, c.checkpoint_id, {**c.payload, "ledger": 0, **mine}, c.paths)
                for c in committables
            ]
        )


class Wrong(NamedTuple):
    """A mutant, and the only thing that kills it: a run that fails otherwise shows nothing."""

    writer_type: type[StagedWriter]
    breach: Breach
    is_right_on_fair_days: bool = True
    """A fair day ends with a new attempt, which takes up what the last one has promised."""


MUTANTS: dict[str, Wrong] = {
    "ledger read before init": Wrong(with_transactions(_ReadsLedgerBeforeInit), Breach.DOUBLED),
    "any coordinator's ledger": Wrong(with_transactions(_BelievesAnyCoordinator), Breach.DOUBLED),
    "no rule 4": Wrong(with_transactions(_IgnoresDoubt), Breach.DOUBLED),
    "no ledger": Wrong(with_transactions(_AsksNoLedger), Breach.DOUBLED, False),
    "init without reading again": Wrong(with_transactions(_InitsWithoutReadingAgain), Breach.DOUBLED, False),
    "negative ledger": Wrong(with_transactions(_WritesNegativeLedger), Breach.STUCK, False),
    "no fencing": Wrong(with_transactions(_CommitsWithoutInit), Breach.DOUBLED),
    "sent ahead in doubt": Wrong(with_transactions(_SendsAheadInDoubt), Breach.DOUBLED),
    "sent ahead and again": Wrong(with_transactions(_ForgetsWhatItSentAhead), Breach.DOUBLED, False),
    "no re-commit after recovery": Wrong(_DoesNotCommitAgain, Breach.LOST),
    "output of an aborted checkpoint forgotten": Wrong(_ForgetsAbortedCheckpoints, Breach.LOST),
    "rows behind the barrier sent ahead": Wrong(_SendsRowsBehindTheBarrierAhead, Breach.EARLY, False),
    "new owner's id after a rescale": Wrong(_CommitsUnderItsOwnName, Breach.LOST),
}


SHAPES: Sequence[dict[str, object]] = (
    {"ahead": 3},
    {},
    {"zombies": 1, "crashes": 0},
    {"parallelisms": (2, 1, 2), "aborts": 0, "ahead": 1},
)


def explore(
    writer_type: type[StagedWriter], deviations: int, shapes: Sequence[Mapping[str, object]] = SHAPES
) -> int:
    """Every run with so many deviations from the fair course, in worlds of these shapes."""
    runs = 0
    for shape in shapes:
        search = ExhaustiveChoices(deviations_max=deviations)
        for choices in search:
            World(choices, writer_type, **shape).run()  # type: ignore[arg-type]
        runs += search.runs
    return runs


def wider_and_wider(mutant: Wrong) -> Iterator[World]:
    for deviations in (1, 2):  # most mutants die at once
        for shape in SHAPES:
            for choices in ExhaustiveChoices(deviations_max=deviations):
                yield World(choices, mutant.writer_type, **shape)  # type: ignore[arg-type]


def fair_days(mutant: Wrong) -> Iterator[World]:
    for shape in SHAPES:
        fair = {**shape, "crashes": 0, "faults": 0, "zombies": 0, "aborts": 0}
        yield World(NoFaults(), mutant.writer_type, **fair)  # type: ignore[arg-type]


def test_a_fair_day_shows_every_row_once() -> None:
    World(NoFaults(), crashes=0, faults=0, aborts=0).run()


def test_every_run_with_a_fault_is_exact() -> None:
    assert explore(StagedWriter, deviations=1) > 100


@pytest.mark.parametrize("shapes", [SHAPES[:1], pytest.param(SHAPES[1:], marks=pytest.mark.soak)])
def test_every_run_with_two_faults_is_exact(shapes: Sequence[Mapping[str, object]]) -> None:
    assert explore(StagedWriter, deviations=2, shapes=shapes) > 1_000


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_every_run_with_three_faults_is_exact() -> None:
    assert explore(StagedWriter, deviations=3) > 50_000


def test_seeded_runs_with_many_faults_are_exact() -> None:
    for seed in range(600):
        choices = Rare(SeededChoices(seed))
        world = World(
            choices,
            rows_total=3 + seed % 4,
            crashes=1 + seed % 3,
            faults=seed % 4,
            zombies=seed % 2,
            parallelisms=[(1,), (2, 1), (1, 3), (3, 2)][seed % 4],
            ahead=seed % 5,
        )
        try:
            world.run()
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_dies(name: str) -> None:
    assert MUTANTS[name].breach in breaches(wider_and_wider(MUTANTS[name]))


@pytest.mark.parametrize("name", MUTANTS)
def test_on_a_fair_day_a_mutant_breaks_what_it_is_meant_to_or_nothing(name: str) -> None:
    allowed = {None} if MUTANTS[name].is_right_on_fair_days else {None, MUTANTS[name].breach}
    assert set(breaches(fair_days(MUTANTS[name]))) <= allowed
