"""ScriptedClient: a KafkaClient whose producers write by a DirectRoute to a ScriptedBroker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, TopicDescription
from onceflow.connectors.kafka.produce.batch_limit import BatchLimit
from onceflow.connectors.kafka.produce.direct import DirectRoute, ProduceSettings
from onceflow.connectors.kafka.produce.leaders import Leaders
from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.runtime.errors import Retryable
from tests.unit.connectors.kafka.scripted_broker import HOST, PARTITIONS, ScriptedBroker


class ScriptedClient:
    """A KafkaClient. `nodes`: where brokers are said to be, in this order, the last of them the leader; None:
    where they are."""

    def __init__(
        self,
        broker: ScriptedBroker,
        settings: ProduceSettings,
        route: type[DirectRoute] = DirectRoute,
        nodes: Sequence[tuple[str, int]] | None = None,
        mute_s_max: float = 60.0,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._route = route
        self._mute_s_max = mute_s_max
        self.limit = BatchLimit(settings.batch_bytes)
        self.failures: list[str] = []
        """What would give librdkafka its turn."""
        self._nodes = nodes
        self._producers: list[_Producer] = []

    def open_producer(self, ledger: LedgerKey) -> _Producer:
        leaders = self.leaders(ledger)
        settings = ProduceSettings(
            min(self._settings.batch_bytes, self.limit.bytes_max),
            self._settings.message_bytes,
            self._settings.answer_s,
            self._settings.codec,
            self._settings.request_bytes,
        )
        identity = self._broker.transactions.init()
        route = self._route(
            None,  # type: ignore[arg-type]
            leaders,
            ledger.transactional_id,
            identity,
            settings,
            self.limit,
            self.failures.append,
        )
        self._producers.append(_Producer(self._broker, route))
        return self._producers[-1]

    def leaders(self, ledger: LedgerKey) -> Leaders:
        consumer: Any = SimpleNamespace(list_topics=self._list_topics)
        return Leaders(consumer, ledger, BrokerAccess("test"), self._settings.answer_s, self._mute_s_max)

    def read_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        return self._broker.transactions.ledger

    newest_ledger = read_ledger

    def ensure_ledger_topic(self, topic: str) -> None: ...

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        return {topic: TopicDescription(PARTITIONS) for topic in topics}

    def offsets_retention_ms(self) -> int:
        return 1 << 40

    def close(self) -> None:
        for producer in self._producers:
            producer.discard()

    def _list_topics(self, topic: str, timeout: float) -> Any:
        nodes = self._nodes or [(HOST, port) for port in self._broker.ports]
        leader = self._broker.leader if self._nodes is None else len(nodes) - 1
        brokers = {n: SimpleNamespace(host=host, port=port) for n, (host, port) in enumerate(nodes)}
        partitions = dict.fromkeys(range(PARTITIONS), SimpleNamespace(leader=leader))
        topics = {topic: SimpleNamespace(error=None, partitions=partitions)}
        return SimpleNamespace(brokers=brokers, topics=topics)


class _Producer:
    """A TransactionalProducer: the route writes, the rest is told to the broker as librdkafka would."""

    def __init__(self, broker: ScriptedBroker, route: DirectRoute) -> None:
        self._broker = broker
        self._route = route
        self._entry: LedgerEntry | None = None

    def begin(self) -> None:
        self._route.begin()

    def produce(self, rows: pa.RecordBatch) -> None:
        self._route.send(rows, lambda is_sent: None)

    def flush(self) -> int:
        self._route.is_flushed(1.0)
        return self._route.delivered

    def send_ledger(self, entry: LedgerEntry) -> None:
        self._entry = entry

    def commit(self) -> None:
        if not self._route.may_commit:
            raise Retryable("not all that was sent is acknowledged")
        assert self._entry is not None
        self._broker.transactions.commit(self._route.identity, self._entry)

    def doubt(self) -> str | None:
        return None

    def abort(self) -> None:
        self._route.abort()

    def discard(self) -> None:
        self._route.close()
