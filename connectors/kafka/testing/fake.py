"""FakeClient: a client of the broker in memory, behind a network that lies.

Every call of a client is a step at which a chooser may let the process crash, lose the request, lose the
reply, have librdkafka send the request twice while the first copy is under way for as long as it likes, or
have a coordinator answer that was replaced and does not know it yet.
`FakeClient` is a TwoPhaseClient: transactions run on it as they run on a real broker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, ProducerIdentity, TopicDescription
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.runtime.errors import Fenced, Indeterminate, OnceflowError, Retryable


class Chooser(Protocol):
    """The one source of nondeterminism (runtime/testing/choices.py)."""

    def choose(self, n: int, what: str = "") -> int:
        """A number in range(n). 0 is always the fair course."""
        ...


class ProcessCrash(BaseException):
    """The process that made this call is dead: nobody catches it but the test's world."""


class NoFaults:
    """The chooser of a good day."""

    def choose(self, n: int, what: str = "") -> int:
        return 0


class Impatience:
    """Patience for a simulation: no pauses, few tries."""

    def __init__(self) -> None:
        self._failures = 0

    def wait(self, error: OnceflowError) -> None:
        self._failures += 1
        if self._failures > 8:
            raise Retryable(f"gave up: {error}")

    def reset(self) -> None:
        self._failures = 0


@dataclass(slots=True)
class FakeNetwork:
    """Between one process and the broker: what may go wrong at each call, and how often.

    `on_pause`, if given, runs while the process stands still at a call: a zombie in the making.
    """

    broker: FakeKafka
    chooser: Chooser
    crashes_max: int = 0
    faults_max: int = 0
    on_pause: Callable[[], None] | None = None
    cuts: int = 0

    def call(
        self,
        what: str,
        request: Callable[[], Any],
        *,
        is_resent: bool = False,
        of_replaced: Callable[[], Any] | None = None,
    ) -> Any:
        """Send a request, maybe badly. `is_resent`: librdkafka sends it again after a cut and says OK.
        `of_replaced`: what a coordinator answers that was replaced; None: it can't answer."""
        self._deliver_late()
        course = self._course(what, is_resent, of_replaced is not None)
        if course == "a replaced one answers":
            assert of_replaced is not None
            return of_replaced()
        if course == "crash before":
            raise ProcessCrash(what)
        if course == "pause":
            on_pause, self.on_pause = self.on_pause, None
            assert on_pause is not None
            on_pause()
        if course == "request lost":
            self.cuts += 1
            raise Indeterminate(f"{what}: timed out") if is_resent else Retryable(f"{what}: timed out")
        if course == "late and lost":
            self.cuts += 1
            self.broker.late.append(request)
            raise Indeterminate(f"{what}: timed out")
        if course == "first copy late":
            self.cuts += 1
            self.broker.late.append(request)
        answer = request()
        if course == "crash after":
            raise ProcessCrash(what)
        if course == "reply lost":
            self.cuts += 1
            raise Indeterminate(f"{what}: timed out")
        return answer

    def _course(self, what: str, is_resent: bool, may_be_old: bool) -> str:
        courses = ["well"]
        if self.crashes_max:
            courses += ["crash before", "crash after"]
        if self.faults_max:
            courses += ["request lost", "reply lost"]
            if is_resent:
                courses += ["first copy late", "late and lost"]
            if may_be_old:
                courses.append("a replaced one answers")
        if self.on_pause is not None:
            courses.append("pause")
        if len(courses) == 1:
            return "well"
        course = courses[self.chooser.choose(len(courses), what)]
        self.crashes_max -= course.startswith("crash")
        self.faults_max -= course not in ("well", "pause", "crash before", "crash after")
        return course

    def _deliver_late(self) -> None:
        while self.broker.late and self.chooser.choose(2, "a late request arrives"):
            arrived = self.broker.late.pop(0)
            try:
                arrived()
            except Fenced:
                continue  # nobody waits for the answer


class FakeClient:
    """TwoPhaseClient of one process."""

    def __init__(self, network: FakeNetwork) -> None:
        self._network = network

    def open_producer(self, ledger: LedgerKey) -> FakeProducer:
        epoch = self._network.call("init", lambda: self._network.broker.init(ledger.transactional_id))
        return FakeProducer(self._network, ledger, epoch)

    def read_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        broker = self._network.broker
        answer: LedgerEntry | None = self._network.call(
            "read ledger",
            lambda: broker.ledgers.get(ledger),
            of_replaced=lambda: broker.ledgers_before.get(ledger),
        )
        return answer

    def newest_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        answer: LedgerEntry | None = self._network.call(
            "read newest ledger", lambda: self._network.broker.ledgers.get(ledger)
        )
        return answer

    def read_ledgers(self, ledgers: Sequence[LedgerKey]) -> Sequence[LedgerEntry | None]:
        broker = self._network.broker
        answers: Sequence[LedgerEntry | None] = self._network.call(
            "read ledgers", lambda: [broker.stable_ledger(ledger) for ledger in ledgers]
        )
        return answers

    def commit_prepared(self, transactional_id: str, identity: ProducerIdentity) -> bool:
        broker, epoch = self._network.broker, identity.epoch
        is_committed: bool = self._network.call(
            "commit prepared", lambda: broker.end_by_anybody(transactional_id, epoch), is_resent=True
        )
        return is_committed

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            self._network.call("fence", partial(self._network.broker.init, transactional_id))

    def ensure_ledger_topic(self, topic: str) -> None: ...

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        known = self._network.broker.topics
        return {topic: known[topic] for topic in topics if topic in known}

    def offsets_retention_ms(self) -> int:
        return 1 << 60

    def close(self) -> None: ...


class FakeProducer:
    """TransactionalProducer with one epoch. Like the real one it learns of fencing late."""

    def __init__(self, network: FakeNetwork, ledger: LedgerKey, epoch: int) -> None:
        self._network = network
        self._ledger = ledger
        self._epoch = epoch
        self._rows = 0
        self._cuts_at_init = network.cuts

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(0, self._epoch)

    def begin(self) -> None:
        self._rows = 0

    def produce(self, rows: pa.RecordBatch) -> None:
        # At the broker at once: the real one may have them at any time from here on.
        sent, broker, transactional_id = rows.to_pylist(), self._network.broker, self._ledger.transactional_id
        self._network.call("produce", lambda: broker.produce(transactional_id, self._epoch, sent))
        self._rows += len(sent)

    def flush(self) -> int:
        return self._rows

    def send_ledger(self, entry: LedgerEntry) -> None:
        ledger, epoch, broker = self._ledger, self._epoch, self._network.broker
        self._network.call("send ledger", lambda: broker.offset_commit(ledger, epoch, entry), is_resent=True)

    def commit(self) -> None:
        transactional_id, epoch, broker = self._ledger.transactional_id, self._epoch, self._network.broker
        self._network.call("commit", lambda: broker.end(transactional_id, epoch), is_resent=True)

    def doubt(self) -> str | None:
        cuts = self._network.cuts - self._cuts_at_init
        return f"{cuts} connections broke" if cuts else None

    def abort(self) -> None:
        with contextlib.suppress(OnceflowError):
            transactional_id, epoch, broker = self._ledger.transactional_id, self._epoch, self._network.broker
            self._network.call("abort", lambda: broker.abort(transactional_id, epoch))

    def discard(self) -> None: ...
