"""LibrdkafkaProducer: TransactionalProducer on confluent-kafka, and how it finds doubt (rule 4).

After a cut or a timeout librdkafka sends EndTxn and TxnOffsetCommit again by itself and then says OK,
while the first copy may still be under way; it would hit the next transaction of the same epoch. Only
the statistics tell of it, so a producer whose connections broke since it was initialised is given up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, ProducerIdentity
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.batch_limit import BatchLimit
from onceflow.connectors.kafka.produce.choose import DirectChoice
from onceflow.connectors.kafka.produce.record_size import largest_too_large
from onceflow.connectors.kafka.produce.route import LOG, Route, open_route
from onceflow.connectors.kafka.transactions.calls import ExplainedCalls
from onceflow.connectors.kafka.transactions.cuts import CutsWatch, now_us
from onceflow.connectors.kafka.transactions.producer_settings import DEFAULTS, STATISTICS_MS, ProducerSettings
from onceflow.connectors.kafka.transactions.reasons import Reasons
from onceflow.connectors.kafka.transactions.throttle import Throttle
from onceflow.runtime.errors import Fatal, OnceflowError, OptionError, Retryable

_IDLE_POLL_S = 0.5
_SAMPLE_DEADLINE_S = 2.0
_NO_PROGRESS_S = 20.0
_INIT_S = 20.0
_SLICE_S = 1.0
_FLUSH_POLL_S = 1.0
_ABORT_S = 2.0
"""Nothing rests on an abort: the next producer's init does it, or the transaction's timeout."""
_SETTLING = (
    KafkaError._TIMED_OUT,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)


class LibrdkafkaProducer:
    """One producer epoch. Thread-safe: a small thread serves its callbacks while nobody uses it."""

    def __init__(
        self,
        options: KafkaOptions,
        settings: ProducerSettings,
        ledger: LedgerKey,
        group: Consumer,
        limit: BatchLimit,
    ) -> None:
        self._options = options
        self._settings = settings
        self._ledger = ledger
        self._group = group
        self._lock = threading.RLock()
        self._discarded = threading.Event()
        self._throttle = Throttle(settings.transaction_timeout_ms / 1000)
        self._reasons = Reasons(options, self._throttle)
        self._request_s = settings.request_ms(options) / 1000
        self._watch = CutsWatch(self._throttle)
        self._sent_until_us = 0
        self._broken: str | None = None
        self._is_sending = False
        self._identity: ProducerIdentity | None = None
        try:
            ours = settings.librdkafka(options, ledger.transactional_id, limit.bytes_max)
            callbacks = {
                "stats_cb": self._watch.on_statistics,
                "error_cb": self._reasons.on_error,
                "logger": LOG,
            }
            self._producer = Producer(options.producer({**ours, **callbacks}, DEFAULTS))
        except KafkaException as e:
            raise OptionError(f"librdkafka refuses its settings: {options.redact(e.args[0].str())}") from e
        watchers = self._watch.on_statistics, self._reasons.on_error
        self._route = open_route(self._producer, options, *watchers, is_bulk=settings.route != "one by one")
        self._calls = ExplainedCalls(
            self._producer,
            self._route,
            self._reasons,
            limit,
            self._request_s,
            self._is_cut,
            self._discarded,
        )

    @staticmethod
    def open(
        options: KafkaOptions,
        settings: ProducerSettings,
        ledger: LedgerKey,
        group: Consumer,
        direct: DirectChoice,
        limit: BatchLimit,
    ) -> LibrdkafkaProducer:
        """A producer that has fenced all before it, with a sample of its connections taken after that."""
        self = LibrdkafkaProducer(options, settings, ledger, group, limit)
        try:
            self._init()
        except OnceflowError:
            self.discard()
            raise
        if not self._wait_sample(now_us()):
            self.discard()
            raise Retryable("librdkafka gave no statistics after the producer was initialised")
        self._watch.mark()
        self._identity = self._watch.identity
        self._route = self._calls.route = self._route_of(direct)
        threading.Thread(target=_serve, args=(self,), name="kafka-callbacks", daemon=True).start()
        return self

    def begin(self) -> None:
        with self._lock:
            self._route.begin()
            self._throttle.forget_past()
            self._is_sending = True
            self._calls.use(self._producer.begin_transaction, "begin a transaction", self._id)

    def produce(self, rows: pa.RecordBatch) -> None:
        with self._lock:
            self._poll(0)  # a message is kept until its report is taken
            try:
                self._route.send(rows, self._wait_progress)
            except KafkaException as e:
                where = f"Topic {rows['topic'][0]}"
                if e.args[0].code() in (KafkaError._FATAL, KafkaError._STATE):
                    self._explain_failed_transaction(where)
                if e.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise largest_too_large(rows, self._settings.message_bytes(self._options)) from e
                raise self._reasons.failure(e.args[0], "write", where) from e

    def flush(self) -> int:
        with self._lock:
            self._wait_progress(lambda: self._route.is_flushed(_FLUSH_POLL_S))
            if self._route.first_failure is None:
                return self._route.delivered
            raise self._why_unwritten(*self._route.first_failure)

    def send_ledger(self, entry: LedgerEntry) -> None:
        # The broker drops a negative offset and says OK to everything.
        assert 0 <= entry.checkpoint_id < 1 << 63, "a ledger value is a checkpoint id"
        with self._lock:
            where = f"Topic {self._ledger.topic}, Group {self._ledger.transactional_id}"
            self._send_offsets(entry, "write the ledger", where)

    def commit(self) -> None:
        with self._lock:
            self._is_sending = False
            if not self._route.may_commit:
                raise Retryable(f"not all that was sent is acknowledged ({self._id})")
            started = time.monotonic()
            self._calls.commit(self._producer.commit_transaction, self._id)
            self._sent_until_us = now_us()
            took_s = time.monotonic() - started
            if took_s > self._request_s / 2:
                self._broken = f"the commit took {took_s:.1f} s"

    @property
    def identity(self) -> ProducerIdentity:
        if self._identity is None:
            raise Retryable(f"librdkafka's statistics do not tell whom the broker takes {self._id} for")
        return self._identity

    def doubt(self) -> str | None:
        with self._lock:
            if self._broken is not None or not self._sent_until_us:
                return self._broken
            if not self._wait_sample(self._sent_until_us):
                return "no statistics since the last commit"
            if self._watch.identity != self._identity:
                return "the producer has another epoch"
            cuts = self._watch.since_mark()
            return f"{cuts} connections broke or requests timed out" if cuts else self._broken

    def abort(self) -> None:
        with self._lock:
            self._is_sending = False
            if self._reasons.is_away:
                return
            self._route.abort()
            try:
                self._calls.use(lambda: self._producer.abort_transaction(_ABORT_S), "abort", self._id)
            except OnceflowError as e:
                LOG.info("%s", e)

    def discard(self) -> None:
        # No close(): it would abort, with this epoch, what a commit under way may be committing.
        with self._lock:
            if not self._discarded.is_set():
                self._discarded.set()
                self._calls.close()
                self._route.close()
                del self._producer

    def _route_of(self, direct: DirectChoice) -> Route:
        """What writes the records, now that the broker has given us an epoch."""
        if self._settings.route != "direct" or self._identity is None:
            return self._route
        limit = self._settings.message_bytes_max
        route = direct.open(self._producer, self._group, self._ledger, self._identity, limit, self._request_s)
        if route is None:
            return self._route
        self._route.close()
        return route

    @property
    def _id(self) -> str:
        return f"TransactionalId {self._ledger.transactional_id}"

    def _is_cut(self) -> bool:
        """Whether a connection broke, or a request timed out, since the producer was initialised."""
        self._poll(0)  # the statistics that tell of it
        return self._watch.since_mark() > 0

    def _send_offsets(self, entry: LedgerEntry, action: str, resource: str) -> None:
        position = TopicPartition(self._ledger.topic, 0, entry.checkpoint_id, metadata=entry.metadata)
        group = self._group.consumer_group_metadata()
        # Its coordinator may be a leader whose last answer throttles us, which no statistics tell yet: the
        # call itself has the whole time, and the deadline around it learns how much of it.
        timeout_s = self._settings.transaction_timeout_ms / 1000
        send = self._producer.send_offsets_to_transaction
        self._calls.use(lambda: send([position], group, timeout_s), action, resource)

    def _why_unwritten(self, error: KafkaError, topic: str) -> OnceflowError:
        """What to raise for the first record that will not be delivered."""
        if error.code() == KafkaError._PURGE_QUEUE:
            self._explain_failed_transaction(f"Topic {topic}")
        return self._calls.unwritten(error, topic)

    def _explain_failed_transaction(self, where: str) -> None:
        """The transaction failed first; its next call says why, and changes nothing any more. The report of
        the records because of which it failed knows more, and is on its way."""
        deadline = time.monotonic() + _SAMPLE_DEADLINE_S
        while self._route.first_failure is None and time.monotonic() < deadline:
            if self._route.is_flushed(STATISTICS_MS / 1000):
                break
        self._send_offsets(LedgerEntry(0, ""), "write", where)

    def _init(self) -> None:
        """In slices, since librdkafka only times out where the error callback knows why."""
        deadline = time.monotonic() + _INIT_S
        while True:
            try:
                self._producer.init_transactions(_SLICE_S)
            except KafkaException as e:
                self._poll(0)
                error = self._reasons.failure(e.args[0], "initialise the producer", self._id)
                is_late = self._reasons.is_away or time.monotonic() > deadline
                is_settling = e.args[0].code() in _SETTLING
                if isinstance(error, Fatal) or not is_settling or is_late:
                    raise error from e
            else:
                self._reasons.is_away = False
                return

    def _wait_progress(self, is_done: Callable[[], bool]) -> None:
        """Wait until it is done; gives up if no record is acknowledged for a while."""
        seen, since = self._route.delivered, time.monotonic()
        while not self._calls.explained(is_done, "send records", self._id):
            if self._route.first_failure is not None:  # others may be queued until the transaction's end
                raise self._why_unwritten(*self._route.first_failure)
            if self._route.delivered != seen:
                seen, since = self._route.delivered, time.monotonic()
                self._reasons.is_away = False
            elif self._reasons.is_away or self._throttle.waited_s(since) > _NO_PROGRESS_S:
                raise self._reasons.no_progress(time.monotonic() - since)

    def _wait_sample(self, after_us: int) -> bool:
        """Serve callbacks until there are statistics made later than after_us."""
        deadline = time.monotonic() + _SAMPLE_DEADLINE_S
        self._poll(0)
        while self._watch.sample_us <= after_us and self._broken is None:
            if time.monotonic() > deadline:
                return False
            self._poll(STATISTICS_MS / 1000)
        return True

    def _poll(self, timeout_s: float) -> None:
        # A transaction may take longer than the serving thread sleeps. A report that it took past the
        # route would be missing in the count, and all the records would be sent again.
        poll = self._route.poll if self._is_sending else self._producer.poll
        try:
            self._calls.explained(lambda: poll(timeout_s), "use the producer", self._id)
        except OnceflowError as e:
            self._broken = str(e)


def _serve(self: LibrdkafkaProducer) -> None:
    """Statistics pile up in a queue unless somebody polls: this thread does between transactions."""
    while not self._discarded.wait(_IDLE_POLL_S):
        with self._lock:
            if not self._discarded.is_set():
                self._poll(0)
