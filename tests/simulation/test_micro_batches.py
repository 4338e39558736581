"""Micro-batches on the fake broker: crashes, lost and late requests, zombie drivers, an expired ledger.

The world plays Spark: it runs a batch again, with other rows, until its own log has it. Goal: of each batch
all rows of one attempt become visible, and none of another. Each mutant leaves out one rule: it must fail.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, KafkaClient, LedgerEntry, LedgerKey
from onceflow.connectors.kafka.testing.fake import (
    Chooser,
    FakeClient,
    FakeNetwork,
    Impatience,
    NoFaults,
    ProcessCrash,
)
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka, Row
from onceflow.connectors.kafka.transactions.ahead import Output
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.waiting import Patience
from onceflow.runtime.errors import DataLossError, Fatal, Fenced, Indeterminate, Retryable, UsageError
from onceflow.runtime.testing.choices import ExhaustiveChoices, SeededChoices
from onceflow.runtime.testing.violations import Breach, Violation, breaches
from onceflow.structured_streaming.micro_batches import (
    BatchCommits,
    SentMarks,
    check_ledger,
    ledger_after,
    tie_uid,
)

QUERY = "6f1c"
LEDGER = LedgerKey("onceflow.out", "ledger")
RUNS_MAX = 14
ROWS = 2


class Committer(Protocol):
    """What a process that commits keeps from batch to batch."""

    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None: ...


NewProcess = Callable[[KafkaClient, Patience], Committer]


def as_it_is(client: KafkaClient, patience: Patience) -> Committer:
    return BatchCommits(client, LEDGER, QUERY, patience)


@dataclass(frozen=True)
class Files:
    """What one attempt at a batch has staged."""

    batch_id: int
    attempt: int

    @property
    def checkpoint_id(self) -> int:
        return ledger_after(self.batch_id)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(ROWS):
            yield one_row(f"{self.batch_id} {self.attempt} {number}")


@dataclass(frozen=True)
class OfAnotherBatch(Files):
    """The same rows under the ledger value of another batch."""

    numbered: int

    @property
    def checkpoint_id(self) -> int:
        return ledger_after(self.numbered)


@functools.cache  # a run has few, and there are thousands of runs
def one_row(value: str) -> pa.RecordBatch:
    row = {"topic": "out", "partition": 0, "value": value.encode()}
    return pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA)


@dataclass
class Marks:
    """SentMarks on a disk that outlives crashes; each write may be the last thing a driver does."""

    world: World
    network: FakeNetwork

    def has(self, batch_id: int) -> bool:
        return batch_id in self.world.marked

    def add(self, batch_id: int) -> None:
        self.network.call("mark", lambda: self.world.marked.add(batch_id))

    def forget_before(self, batch_id: int) -> None:
        self.world.marked -= {n for n in self.world.marked if n < batch_id}


@dataclass
class World:
    """Runs of a query of a few batches."""

    choices: Chooser
    process: NewProcess = as_it_is
    batches: int = 2
    crashes: int = 1
    faults: int = 1
    zombies: int = 0
    expiries: int = 0
    processes: int = 1
    """How many may commit, as Spark chooses: two if another query commits at the same time."""
    broker: FakeKafka = field(default_factory=FakeKafka)
    marked: set[int] = field(default_factory=set)
    logged: int = 0
    """How many batches Spark's commit log has."""
    attempts: Counter[int] = field(default_factory=Counter)
    is_in_doubt: bool = False
    """The ledger expired while a batch that had been tried was not in Spark's log."""
    is_stopped: bool = False
    had_zombie: bool = False

    def run(self) -> None:
        for _ in range(RUNS_MAX):
            self.run_query()
            if self.logged >= self.batches or self.is_stopped:
                break
            self._rest()
        else:
            raise Violation(Breach.STUCK, f"no end after {RUNS_MAX} runs")
        for arrives in self.broker.late:
            with contextlib.suppress(Fenced):
                arrives()
        self.check(is_complete=not self.is_stopped)

    def run_query(self) -> None:
        network = FakeNetwork(self.broker, self.choices, self.crashes, self.faults)
        if self.zombies:
            self.zombies -= 1
            self.had_zombie = True
            network.on_pause = self.run_query
        try:
            self._run_batches(network)
        except (ProcessCrash, Retryable, Indeterminate, Fenced):
            pass  # somebody starts the query again
        except DataLossError:
            if not self.is_in_doubt:
                raise Violation(Breach.STUCK, "it stopped though nothing was in doubt") from None
            self.is_stopped = True
        except Fatal as e:
            if "another driver" not in str(e) or not self.had_zombie:
                raise Violation(Breach.STUCK, str(e)) from e  # only a zombie may find that it was overtaken
        finally:
            self.crashes = min(self.crashes, network.crashes_max)
            self.faults = min(self.faults, network.faults_max)
        self.check(is_complete=False)

    def _run_batches(self, network: FakeNetwork) -> None:
        processes = [self.process(FakeClient(network), Impatience()) for _ in range(self.processes)]
        for batch_id in range(self.logged, self.batches):
            self.attempts[batch_id] += 1
            files = Files(batch_id, self.attempts[batch_id])
            chosen = self.choices.choose(self.processes, "who commits") if self.processes > 1 else 0
            processes[chosen].commit(batch_id, [files], Marks(self, network))
            network.call("Spark's log", lambda batch=batch_id: self._log(batch))

    def _log(self, batch_id: int) -> None:
        self.logged = max(self.logged, batch_id + 1)

    def _rest(self) -> None:
        """Between two runs: for an hour, or for so long that the broker forgets."""
        if self.expiries and self.choices.choose(2, "the ledger expires"):
            self.expiries -= 1
            self.broker.forget_ledger(LEDGER)
            self.broker.late.clear()
            self.is_in_doubt = self.logged in self.marked

    def check(self, *, is_complete: bool) -> None:
        seen: dict[int, list[str]] = defaultdict(list)
        for row in self.broker.visible:
            seen[int(row["value"].split()[0])].append(row["value"].decode())
        for batch_id, rows in seen.items():
            if len({row.split()[1] for row in rows}) > 1 or len(rows) > len(set(rows)):
                raise Violation(Breach.DOUBLED, f"batch {batch_id} shows rows of several attempts: {rows}")
            if len(rows) < ROWS:
                raise Violation(Breach.LOST, f"batch {batch_id} shows {rows}")
        due = range(self.batches if is_complete else self.logged)
        if not set(due) <= set(seen):
            raise Violation(Breach.LOST, f"lost: {len(due)} batches are due, seen {set(seen)}")


# --- Mutants ------------------------------------------------------------------------------------------


@dataclass
class Mutant:
    """A process that keeps nothing and leaves out one rule."""

    client: KafkaClient
    patience: Patience

    def transactions(self, last_seen: int | None = None) -> OwnerTransactions:
        return OwnerTransactions(self.client, LEDGER, Claimant(QUERY, 0), self.patience, last_seen)


class WithoutAMark(Mutant):
    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        self.transactions().commit(ledger_after(batch_id), outputs)


class MarkedWhenItIsSent(Mutant):
    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        self.transactions(batch_id if marks.has(batch_id) else None).commit(ledger_after(batch_id), outputs)
        marks.add(batch_id)


class WithoutTheFirstStep(Mutant):
    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        last_seen = batch_id if marks.has(batch_id) else None
        marks.add(batch_id)
        self.transactions(last_seen).commit(ledger_after(batch_id), outputs)


class TrustingSparksLog(Mutant):
    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        class NoLedger(OwnerTransactions):
            def _committed_before(self) -> int:
                super()._committed_before()
                return batch_id

        transactions = NoLedger(self.client, LEDGER, Claimant(QUERY, 0), self.patience, None)
        transactions.commit(ledger_after(batch_id), outputs)


class WithALedgerOfTheBatchId(Mutant):
    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        before = max(0, batch_id - 1)
        renumbered = [OfAnotherBatch(files.batch_id, files.attempt, before) for files in outputs]
        BatchCommits(self.client, LEDGER, QUERY, self.patience).commit(before, renumbered, marks)


class Forgetful(Marks):
    def add(self, batch_id: int) -> None:
        """Make no mark."""


class KeptWithoutAMark:
    """Marks the first batch only: after it the producer is known."""

    def __init__(self, client: KafkaClient, patience: Patience) -> None:
        self._right, self._has_marked = as_it_is(client, patience), False

    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        assert isinstance(marks, Marks)
        made = Forgetful(marks.world, marks.network) if self._has_marked else marks
        self._has_marked = True
        self._right.commit(batch_id, outputs, made)


class KeptWithoutAsking(Mutant):
    """Asks the ledger only before a batch whose predecessor it has not committed itself."""

    _next: int | None = None

    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        if self._next == batch_id:
            marks.add(batch_id)
            producer = self.client.open_producer(LEDGER)
            producer.begin()
            for output in outputs:
                producer.produce(pa.Table.from_batches(output.batches()).combine_chunks().to_batches()[0])
            producer.send_ledger(LedgerEntry(ledger_after(batch_id), Claimant(QUERY, 0).metadata()))
            producer.commit()
        else:
            as_it_is(self.client, self.patience).commit(batch_id, outputs, marks)
        self._next = batch_id + 1


class Wrong(NamedTuple):
    """A mutant, and the only thing that kills it: a run that fails otherwise shows nothing."""

    process: NewProcess
    breach: Breach
    is_right_on_fair_days: bool = True


MUTANTS: dict[str, Wrong] = {
    "no mark": Wrong(WithoutAMark, Breach.DOUBLED),
    "marked after it was sent": Wrong(MarkedWhenItIsSent, Breach.DOUBLED),
    "the ledger is not made sure of first": Wrong(WithoutTheFirstStep, Breach.STUCK),
    "no ledger": Wrong(TrustingSparksLog, Breach.DOUBLED),
    "one ledger value for two batches": Wrong(WithALedgerOfTheBatchId, Breach.LOST, False),
    "a kept producer needs no mark": Wrong(KeptWithoutAMark, Breach.DOUBLED),
    "a process that has committed need not ask the ledger": Wrong(KeptWithoutAsking, Breach.DOUBLED),
}


SHAPES: tuple[dict[str, int], ...] = (
    {},
    {"zombies": 1, "crashes": 0},
    {"expiries": 1, "crashes": 2, "faults": 0},
    {"processes": 2, "batches": 3, "crashes": 0},
)


def explore(deviations: int) -> int:
    """Every run with so many deviations from the fair course."""
    runs = 0
    for shape in SHAPES:
        search = ExhaustiveChoices(deviations_max=deviations)
        for choices in search:
            World(choices, **shape).run()
        runs += search.runs
    return runs


def wider_and_wider(mutant: Wrong) -> Iterator[World]:
    for deviations in (1, 2):  # most mutants die at once
        for shape in SHAPES:
            for choices in ExhaustiveChoices(deviations_max=deviations):
                yield World(choices, mutant.process, **shape)


def test_a_fair_day_shows_every_batch_once() -> None:
    World(NoFaults(), crashes=0, faults=0).run()


def test_every_run_with_two_faults_is_exact() -> None:
    assert explore(deviations=2) > 1_000


@pytest.mark.soak
@pytest.mark.timeout(1_800)
def test_every_run_with_three_faults_is_exact() -> None:
    assert explore(deviations=3) > 10_000


def test_seeded_runs_with_many_faults_are_exact() -> None:
    for seed in range(1_000):
        world = World(
            Rare(SeededChoices(seed)),
            batches=2 + seed % 4,
            crashes=1 + seed % 4,
            faults=seed % 3,
            zombies=seed % 2,
            expiries=(seed // 2) % 2 * (1 - seed % 2),
            processes=1 + seed // 4 % 2,
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
    assert set(breaches([World(NoFaults(), MUTANTS[name].process, crashes=0, faults=0)])) <= allowed


class Rare:
    """Mostly the fair course: else all faults are spent in the first steps."""

    def __init__(self, choices: SeededChoices) -> None:
        self._choices = choices

    def choose(self, n: int, what: str = "") -> int:
        if what not in (
            "a late request arrives",
            "the ledger expires",
            "who commits",
        ) and self._choices.choose(6, what):
            return 0
        return self._choices.choose(n, what)


# --- What is kept from batch to batch -----------------------------------------------------------------


def kept_process(broker: FakeKafka) -> tuple[Committer, Marks]:
    """A process that commits one batch after the other, on a good day."""
    network = FakeNetwork(broker, NoFaults())
    committer = as_it_is(FakeClient(network), Impatience())
    return committer, Marks(World(NoFaults(), broker=broker), network)


def test_a_process_fences_once_and_needs_one_transaction_for_each_later_batch() -> None:
    broker = FakeKafka()
    committer, marks = kept_process(broker)
    for batch_id in range(5):
        committer.commit(batch_id, [Files(batch_id, 1)], marks)
    assert len(broker.visible) == 5 * ROWS
    assert broker.init(LEDGER.transactional_id) == 1, "the second epoch there ever was"


def test_a_kept_producer_that_another_driver_has_fenced_writes_nothing_of_its_own() -> None:
    broker = FakeKafka()
    committer, marks = kept_process(broker)
    committer.commit(0, [Files(0, 1)], marks)
    commit_as(QUERY, broker, 1)
    committer.commit(1, [Files(1, 7)], marks)
    shown = [row["value"].decode().split()[:2] for row in broker.visible]
    assert shown == [["0", "1"]] * ROWS + [["1", "1"]] * ROWS


def test_a_batch_that_was_committed_is_asked_for_again_in_the_same_process() -> None:
    broker = FakeKafka()
    committer, marks = kept_process(broker)
    committer.commit(0, [Files(0, 1)], marks)
    committer.commit(0, [Files(0, 2)], marks)
    committer.commit(1, [Files(1, 1)], marks)
    assert len(broker.visible) == 2 * ROWS


# --- To whom a ledger answers -------------------------------------------------------------------------


def commit_as(query_id: str, broker: FakeKafka, batch_id: int, marks: set[int] | None = None) -> None:
    """Batch `batch_id` of this query, on a good day."""
    network = FakeNetwork(broker, NoFaults())
    world = World(NoFaults(), broker=broker, marked=set() if marks is None else marks)
    files = Files(batch_id, 1)
    client, kept = FakeClient(network), Marks(world, network)
    BatchCommits(client, LEDGER, query_id, Impatience()).commit(batch_id, [files], kept)


def test_the_uid_of_another_query_is_refused_before_anything_is_written() -> None:
    broker = FakeKafka()
    commit_as("first", broker, 0)
    before: list[Row] = list(broker.visible)
    with pytest.raises(UsageError, match=r"belongs to query first, which has written up to batch 0.*new uid"):
        commit_as("second", broker, 0)
    with pytest.raises(UsageError, match="belongs to query first"):
        commit_as("second", broker, 7)
    assert broker.visible == before
    commit_as("first", broker, 1)
    assert len(broker.visible) == 2 * ROWS


def test_a_uid_is_tied_before_the_first_batch_and_again_changes_nothing() -> None:
    broker = FakeKafka()
    client = FakeClient(FakeNetwork(broker, NoFaults()))
    for _ in range(2):
        tie_uid(client, LEDGER, "first", lambda entry: None, Impatience())
        assert broker.ledgers[LEDGER] == LedgerEntry(0, Claimant("first", 0).metadata())
    assert broker.visible == []


def test_an_older_checkpoint_is_refused_and_not_skipped() -> None:
    broker = FakeKafka()
    for batch_id in range(3):
        commit_as("first", broker, batch_id)
    with pytest.raises(Fatal, match="written up to batch 2, but this query is at batch 1"):
        commit_as("first", broker, 1)
    commit_as("first", broker, 2)  # what Spark does after a crash before its log
    assert len(broker.visible) == 3 * ROWS


def test_a_ledger_that_expired_stops_a_batch_that_may_be_written_and_no_other() -> None:
    broker, marks = FakeKafka(), set[int]()
    commit_as("first", broker, 0, marks)
    broker.forget_ledger(LEDGER)
    commit_as("first", broker, 1, marks)  # a new batch after a quiet fortnight
    assert len(broker.visible) == 2 * ROWS
    broker.forget_ledger(LEDGER)
    with pytest.raises(DataLossError, match=r"batch 1 may have been written before.*--set N onceflow\.out"):
        commit_as("first", broker, 1, marks)
    broker.ledgers[LEDGER] = LedgerEntry(2, "")  # as somebody who has looked sets it
    commit_as("first", broker, 1, marks)
    assert len(broker.visible) == 2 * ROWS


def test_a_ledger_of_something_else_is_not_taken() -> None:
    for metadata in ("not json", '{"other": 1}', "[]"):
        with pytest.raises(UsageError, match="something else"):
            check_ledger(LedgerEntry(3, metadata), LEDGER, "first", None)
