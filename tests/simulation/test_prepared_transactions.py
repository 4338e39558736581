"""Prepared transactions on the fake broker: crashes, lost and late requests and zombies at every step.

Goal: each record under a durable checkpoint becomes visible once, whatever happens, and no transaction is
left open for which readers would wait. Each mutant is the protocol with one rule left out: it must fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, ProducerIdentity, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, Impatience, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.owner import Claimant
from onceflow.connectors.kafka.transactions.prepared_owner import IDS, ZOMBIES, PreparedOwner
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedPromise, PreparedTransaction
from onceflow.connectors.kafka.transactions.prepared_writer import PreparedWriter
from onceflow.connectors.kafka.transactions.staged_writer import StagedWriter
from onceflow.runtime.contracts import Committable, PreCommit
from onceflow.runtime.errors import DataLossError, Fatal, Retryable
from onceflow.runtime.testing.choices import ExhaustiveChoices, SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.violations import Breach, Violation, breaches
from tests.simulation.kafka_sink_world import Manifest, Rare, World, one_row


class Prepared(PreparedWriter):
    """A PreparedWriter with the world's name for sending what waits."""

    def send_ahead(self) -> bool:
        return self.send()


@dataclass
class PreparedWorld(World):
    """A World that also looks for what readers would wait for."""

    writer_type: type[Any] = Prepared

    def check(self, *, is_complete: bool) -> None:
        super().check(is_complete=is_complete)
        fenced = range(self.attempt - ZOMBIES, self.attempt + 1)
        kept = [name for name in self.broker.open_ids if name.split(".")[-2] in map(str, fenced)]
        if is_complete and kept:
            raise Violation(Breach.STUCK, f"readers wait for {kept}")


# --- Mutants ------------------------------------------------------------------------------------


class _CommitsAtTheBarrier(Prepared):
    def _prepare(self, epoch: Any) -> PreparedTransaction:
        prepared = super()._prepare(epoch)
        self._own.commit(prepared)
        return prepared


class _DoesNotCommitAgain(Prepared):
    def recover(self, committables: Sequence[Committable]) -> None:
        super().recover([])


class _ForgetsAbortedCheckpoints(Prepared):
    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self._frozen = []
        return super().pre_commit(checkpoint_id)


class _SendsEachRowTwice(Prepared):
    """Rows that are read again after a crash are in a new transaction, and the old one is kept."""

    def _recover(self, committables: Sequence[Committable]) -> None:
        self._client.fence = lambda ids: None  # type: ignore[method-assign]
        super()._recover(committables)


class _PromisesWhatIsCommitted(Prepared):
    """The id is free again, and the next transaction with it is promised beside the last one."""

    def _ended(self) -> Any:
        if not hasattr(self, "ever"):
            self.ever: list[Any] = []
        self.ever += [epoch for epoch in self._frozen if epoch not in self.ever]
        return self.ever if self._in_stage else super()._ended()

    _in_stage = False

    def stage(self, checkpoint_id: int, epochs: Any) -> Committable:
        self._in_stage = True
        try:
            return super().stage(checkpoint_id, epochs)
        finally:
            self._in_stage = False


def owned(owner: type[PreparedOwner]) -> type[Prepared]:
    class Writer(Prepared):
        def _owner(self, name: LedgerKey) -> PreparedOwner:
            return owner(self._client, name, self._claimant, self._topics.patience)

    return Writer


class _FencesFirst(PreparedOwner):
    def settle(self, promised: PreparedPromise | None, restored_checkpoint_id: int) -> None:
        for attempt in range(1, self._attempt):
            self._client.fence([each.transactional_id for each in self.ids_of(attempt)])
        super().settle(promised, restored_checkpoint_id)


class _FencesNobody(PreparedOwner):
    def settle(self, promised: PreparedPromise | None, restored_checkpoint_id: int) -> None:
        for transaction in promised.transactions if promised else ():
            self.commit(transaction)


class _BelievesTheBroker(PreparedOwner):
    """What the broker does not know any more counts as lost."""

    @staticmethod
    def _is_committed(transaction: PreparedTransaction, entry: LedgerEntry | None) -> bool:
        return False


class _OneId(PreparedOwner):
    def free(self, used: Any) -> LedgerKey | None:
        return self.ids_of(self._attempt)[0]


class _AllAttemptsHaveTheSameIds(PreparedOwner):
    """A zombie that starts late fences what a newer attempt has promised."""

    def ids_of(self, attempt: int) -> Sequence[LedgerKey]:
        return super().ids_of(1)


class _ReadsTheLedgerAtOnce(PreparedOwner):
    """An open transaction holds the ledger back."""

    def commit(self, transaction: PreparedTransaction) -> None:
        fence, self._client.fence = self._client.fence, lambda ids: None  # type: ignore[method-assign]
        try:
            super().commit(transaction)
        finally:
            self._client.fence = fence  # type: ignore[method-assign]


class Wrong(NamedTuple):
    """A mutant, and the only thing that kills it."""

    writer_type: type[Prepared]
    breach: Breach | type[Exception]


MUTANTS: dict[str, Wrong] = {
    "committed at the barrier": Wrong(_CommitsAtTheBarrier, Breach.EARLY),
    "no commit after recovery": Wrong(_DoesNotCommitAgain, Breach.LOST),
    "output of an aborted checkpoint forgotten": Wrong(_ForgetsAbortedCheckpoints, Breach.LOST),
    "nobody is fenced": Wrong(owned(_FencesNobody), Breach.STUCK),
    "fenced before it is committed": Wrong(owned(_FencesFirst), DataLossError),
    "no ledger": Wrong(owned(_BelievesTheBroker), DataLossError),
    "one id for all": Wrong(owned(_OneId), DataLossError),
    "all attempts have the same ids": Wrong(owned(_AllAttemptsHaveTheSameIds), Fatal),
    "the ledger is read while the id is in use": Wrong(owned(_ReadsTheLedgerAtOnce), Breach.STUCK),
}

SHAPES: Sequence[dict[str, object]] = (
    {"ahead": 3, "rows_total": 4},
    {},
    {"zombies": 1, "crashes": 0},
    {"parallelisms": (2, 1, 2), "aborts": 0, "ahead": 1},
)


def worlds(
    writer_type: type[Prepared], deviations: int, shapes: Sequence[Mapping[str, object]] = SHAPES
) -> Iterator[PreparedWorld]:
    for shape in shapes:
        for choices in ExhaustiveChoices(deviations_max=deviations):
            yield PreparedWorld(choices, writer_type, **shape)  # type: ignore[arg-type]


def test_a_fair_day_shows_every_row_once() -> None:
    PreparedWorld(NoFaults(), crashes=0, faults=0, aborts=0).run()  # type: ignore[arg-type]


def test_every_run_with_a_fault_is_exact() -> None:
    runs = 0
    for world in worlds(Prepared, deviations=1):
        world.run()
        runs += 1
    assert runs > 100


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_every_run_with_two_faults_is_exact() -> None:
    for world in worlds(Prepared, deviations=2):
        world.run()


def seeded(writer_type: type[Prepared], seeds: int = 300) -> Iterator[PreparedWorld]:
    for seed in range(seeds):
        yield PreparedWorld(
            Rare(SeededChoices(seed)),  # type: ignore[arg-type]
            writer_type,
            rows_total=3 + seed % 4,
            crashes=1 + seed % 3,
            faults=seed % 4,
            zombies=seed % 2,
            parallelisms=[(1,), (2, 1), (1, 3), (3, 2)][seed % 4],
            ahead=seed % 5,
        )


def test_seeded_runs_with_many_faults_are_exact() -> None:
    for seed, world in enumerate(seeded(Prepared)):
        try:
            world.run()
        except Exception as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def all_worlds(writer_type: type[Prepared]) -> Iterator[PreparedWorld]:
    yield from worlds(writer_type, 1)
    yield from seeded(writer_type)
    yield from worlds(writer_type, 2)


def run_all(writer_type: type[Prepared]) -> None:
    for world in all_worlds(writer_type):
        world.run()


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_dies(name: str) -> None:
    wrong = MUTANTS[name]
    if isinstance(wrong.breach, Breach):
        assert wrong.breach in breaches(all_worlds(wrong.writer_type))
        return
    with pytest.raises(wrong.breach):
        run_all(wrong.writer_type)


@pytest.mark.parametrize("first", [StagedWriter, Prepared])
def test_a_sink_may_be_changed_from_the_one_to_the_other(first: type[Any]) -> None:
    """Each attempt is of the other kind; what it finds promised is of the kind before."""

    @dataclass
    class Changing(PreparedWorld):
        def _open(self, attempt: int, *rest: Any) -> Any:
            second = Prepared if first is StagedWriter else StagedWriter
            self.writer_type = first if attempt % 2 else second
            return super()._open(attempt, *rest)

    for shape in ({"rows_total": 3}, {"parallelisms": (2, 1), "aborts": 0}):
        for choices in ExhaustiveChoices(deviations_max=1):
            Changing(choices, **shape).run()  # type: ignore[arg-type]


class Fixed:
    """A writer of one attempt on a broker of its own, step by step."""

    def __init__(self) -> None:
        self.world = PreparedWorld(NoFaults(), crashes=0, faults=0, aborts=0)  # type: ignore[arg-type]
        self.broker = self.world.broker
        self.network = FakeNetwork(self.broker, NoFaults())

    def open(self, restored: Manifest = Manifest(0, 0), kind: type[Any] = Prepared) -> Any:  # noqa: B008
        self.world.attempt += 1
        self.world.writer_type = kind
        writer = self.world._open(self.world.attempt, 0, 1, restored, self.network)
        writer.recover(restored.committables)
        return writer

    def checkpoint(self, writer: Any, checkpoint_id: int) -> Manifest:
        """A row, and a checkpoint that is committed."""
        writer.write_rows(one_row(checkpoint_id))
        promised = writer.pre_commit(checkpoint_id).stage()
        writer.commit(checkpoint_id)
        return Manifest(checkpoint_id, checkpoint_id, [promised])


def test_a_transaction_that_the_broker_has_aborted_is_lost_and_said_so() -> None:
    fixed = Fixed()
    writer = fixed.open()
    writer.write_rows(one_row(0))
    promised = writer.pre_commit(1).stage()
    (name,) = fixed.broker.open_ids
    fixed.broker.time_out(name)
    with pytest.raises(DataLossError, match=rf"1 records of checkpoint 1 are lost.*--set 1 {name}"):
        fixed.open(Manifest(1, 1, [promised]))
    # The way out that the sentence names: somebody has put the ledger there.
    fixed.broker.ledgers[LedgerKey(name, "onceflow-ledger")] = LedgerEntry(1, "")
    fixed.open(Manifest(1, 1, [promised]))
    assert not fixed.broker.visible


def test_checkpoints_that_are_never_completed_end_the_attempt_and_not_the_disk() -> None:
    fixed = Fixed()
    writer = fixed.open()
    for number in range(IDS):
        writer.write_rows(one_row(number))
        writer.pre_commit(number + 1).stage()
    writer.write_rows(one_row(IDS))
    last = writer.pre_commit(IDS + 1)
    with pytest.raises(Retryable, match=f"{IDS} checkpoints in a row were not completed"):
        last.stage()
    with pytest.raises(Retryable):
        writer.write_rows(one_row(0))
    assert not fixed.broker.visible


def test_rows_that_could_not_be_sent_fail_all_that_comes_after() -> None:
    """They are nowhere any more: a later checkpoint without them would be wrong."""
    fixed = Fixed()
    writer = fixed.open()
    writer.write_rows(one_row(0))
    assert writer.send()
    (name,) = fixed.broker.open_ids
    fixed.broker.init(name)  # another attempt
    writer.write_rows(one_row(1))
    assert not writer.send()
    with pytest.raises(Retryable, match="a newer attempt writes, or transaction_timeout has passed"):
        writer.pre_commit(1)
    with pytest.raises(Retryable):
        writer.write_rows(one_row(2))


def test_output_of_a_later_checkpoint_is_not_written_again() -> None:
    fixed = Fixed()
    writer = fixed.open()
    writer.write_rows(one_row(0))
    writer.pre_commit(1).stage()
    writer.commit(1)
    with pytest.raises(Fatal, match="up to checkpoint 1, but the job starts from checkpoint 0"):
        fixed.open()


def go_back_behind_transactions_that_were_prepared() -> None:
    """A sink was staged, then two-phase, and is staged again, from a checkpoint of its first time."""
    fixed = Fixed()
    first = fixed.checkpoint(fixed.open(kind=StagedWriter), 1)
    second = fixed.checkpoint(fixed.open(first), 2)
    for _ in range(2):  # what one start has claimed does not hide it from the next one
        with pytest.raises(Fatal, match="up to checkpoint 2, but the job starts from checkpoint 1"):
            fixed.open(first, StagedWriter)
    third = fixed.checkpoint(fixed.open(second, StagedWriter), 3)
    for earlier in (first, second):
        with pytest.raises(Fatal, match="up to checkpoint 3, but the job starts from"):
            fixed.open(earlier, StagedWriter)
    fixed.open(third, StagedWriter)
    assert [int(row["value"]) for row in fixed.broker.visible] == [1, 2, 3]


def test_staged_output_knows_of_transactions_that_were_prepared_after_it() -> None:
    go_back_behind_transactions_that_were_prepared()


@pytest.mark.parametrize("forgets", ["at once", "after a start"])
def test_a_mark_that_is_forgotten_is_noticed(forgets: str) -> None:
    right = Claimant.after

    def after(self: Claimant, entry: LedgerEntry | None) -> Claimant:
        return right(self, entry) if forgets == "after a start" and self.attempt <= 3 else self

    wrong = Mutant("the mark of two phases is forgotten", [(Claimant, "after", after)])
    with mutated(wrong), pytest.raises(pytest.fail.Exception):
        go_back_behind_transactions_that_were_prepared()


def test_what_is_not_prepared_is_aborted_when_the_writer_is_closed() -> None:
    fixed = Fixed()
    writer = fixed.open()
    writer.write_rows(one_row(0))
    promised = writer.pre_commit(1).stage()
    writer.write_rows(one_row(1))
    assert writer.send()
    assert len(fixed.broker.open_ids) == 2
    writer.close()
    (kept,) = fixed.broker.open_ids
    fixed.open(Manifest(1, 1, [promised]))
    assert [int(row["value"]) for row in fixed.broker.visible] == [0]
    assert kept not in fixed.broker.open_ids


def test_an_unknown_broker_knows_no_transaction() -> None:
    client = FakeClient(FakeNetwork(FakeKafka({"out": TopicDescription(1)}), NoFaults()))
    owner = PreparedOwner(client, LedgerKey("job.out.l.0", "onceflow-ledger"), Claimant("l", 1), Impatience())
    transaction = PreparedTransaction(3, "job.out.l.0.0", ProducerIdentity(7, 0), 5)
    with pytest.raises(DataLossError, match="5 records of checkpoint 3"):
        owner.commit(transaction)
