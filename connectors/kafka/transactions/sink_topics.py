"""SinkTopics: the topics that one writer writes to, asked of brokers that may be away for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from onceflow.connectors.kafka.client import KafkaClient, LedgerKey, TopicDescription
from onceflow.connectors.kafka.produce.constant_columns import only_topic
from onceflow.connectors.kafka.produce.record_size import refuse_too_large
from onceflow.connectors.kafka.transactions.known_topics import KnownTopics
from onceflow.connectors.waiting import NEVER_ANSWERED, SAFE, Patience, WaitForSystem, patiently
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fatal, UsageError

T = TypeVar("T")

LEDGER_TOPIC = "onceflow-ledger"
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class OutputSettings:
    """Where a writer writes, and how long it waits for the brokers."""

    topics: Sequence[str]
    transactional_id_prefix: str | None = None
    """What a transactional id begins with, in front of uid, lineage and owner; None: the job's name."""
    ledger_topic: str = LEDGER_TOPIC
    delivery_timeout_ms: int = 120_000
    """How long the broker may be away before the attempt fails."""
    first_answer_ms: int | None = None
    """How long the first answer to a job that has never run is waited for; None: as long as any other."""

    def ledger_of(self, context: SinkContext, owner: str) -> LedgerKey:
        """The transactional id of this owner, and its ledger."""
        prefix = self.transactional_id_prefix or context.job
        return LedgerKey(f"{prefix}.{context.uid}.{context.lineage}.{owner}", self.ledger_topic)


class SinkTopics:
    """What is known of the topics of one writer, and how long it waits for an answer."""

    def __init__(
        self,
        context: SinkContext,
        client: KafkaClient,
        settings: OutputSettings,
        closed: threading.Event,
        patience: Patience | None = None,
    ) -> None:
        """`closed`: set, nothing is waited for any more. `patience`: by default for delivery_timeout_ms."""
        self._context = context
        self._settings = settings
        self._closed = closed
        self.patience = patience or self._wait(settings.delivery_timeout_ms, SAFE)
        self._known = KnownTopics(client, settings.topics, context.clock)

    def look_up(self) -> None:
        """Ask for all of them. Raises UsageError if one does not exist."""
        first_ms = self._settings.first_answer_ms if self._context.attempt == 1 else None
        first = None if first_ms is None else self._wait(first_ms, NEVER_ANSWERED)
        found = self.ask(self._known.look_up, first)
        for topic in self._settings.topics:
            if topic not in found:
                raise UsageError(_missing(self._context.uid, topic))

    def description(self, name: str) -> TopicDescription | None:
        """What is known of a topic; None: it has not been asked for. Any thread."""
        return self._known.descriptions.get(name)

    def found(self, name: str) -> TopicDescription:
        """Ask for one more topic. Raises Fatal if it does not exist."""
        if not self.ask(lambda: self._known.add(name)):
            raise Fatal(_missing(self._context.uid, name))
        return self._known.descriptions[name]

    def refresh(self) -> None:
        """Ask again, if the answers are minutes old."""
        self._known.refresh()

    def check_sizes(self, rows: pa.RecordBatch) -> None:
        """Raises Fatal naming a record (PRODUCE_SCHEMA) that the broker would refuse."""
        known, only = self._known.descriptions, only_topic(rows)
        counted = known.values() if only is None or only not in known else [known[only]]
        limits = (topic.max_message_bytes or _NO_LIMIT for topic in counted)
        refuse_too_large(rows, min(limits, default=_NO_LIMIT))

    def ask(self, call: Callable[[], T], patience: Patience | None = None) -> T:
        """See patiently."""
        return patiently(patience or self.patience, call)

    def _wait(self, timeout_ms: int, advice: str) -> Patience:
        clock, on_wait = self._context.clock, self._context.on_wait
        return WaitForSystem("Kafka sink", clock, on_wait, timeout_ms, self._closed, advice)


def _missing(uid: str, topic: str) -> str:
    return (
        f"sink {uid!r}: topic {topic!r} does not exist: create it with the partitions and the retention it "
        "should have, and start the job again"
    )
