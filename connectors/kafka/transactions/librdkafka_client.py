"""LibrdkafkaClient: TwoPhaseClient on confluent-kafka, and past it where it has no call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, ProducerIdentity, TopicDescription
from onceflow.connectors.kafka.committed_offsets import ask_for_group, group_reader
from onceflow.connectors.kafka.failures import connection_failure, denied, failure
from onceflow.connectors.kafka.options import Isolation, KafkaOptions
from onceflow.connectors.kafka.produce.batch_limit import BatchLimit
from onceflow.connectors.kafka.produce.choose import DirectChoice
from onceflow.connectors.kafka.produce.route import LOG
from onceflow.connectors.kafka.protocol.broker_access import access_of
from onceflow.connectors.kafka.protocol.transaction_messages import Node
from onceflow.connectors.kafka.transactions.coordinator_requests import CoordinatorRequests
from onceflow.connectors.kafka.transactions.ledger_topics import LedgerTopics
from onceflow.connectors.kafka.transactions.newest_offsets import NewestOffsets
from onceflow.connectors.kafka.transactions.producer import LibrdkafkaProducer
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.who_is_there import AWAY, learn_who_is_there
from onceflow.runtime.errors import Fatal, OptionError, Retryable

_REQUEST_S = 5.0
_ADMIN_S = 10.0
_DEFAULT_OFFSETS_RETENTION_MS = 7 * 24 * 3600 * 1000
_QUICK = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 5,
    "retry.backoff.max.ms": 100,
}


class LibrdkafkaClient:
    """TwoPhaseClient on a real broker. `close` it; what it opened is closed with it."""

    def __init__(self, options: KafkaOptions, settings: ProducerSettings) -> None:
        self._options = options
        self._settings = settings
        self._limit = BatchLimit(settings.batch_bytes(options))
        self._direct = DirectChoice(
            options, self._limit, settings.transaction_timeout_ms / 1000, settings.direct_pause_s
        )
        self._readers: dict[LedgerKey, Consumer] = {}
        self._newest: dict[LedgerKey, NewestOffsets] = {}
        self._ledger_topics = LedgerTopics()
        self._admin_client: AdminClient | None = None
        self._coordinators: CoordinatorRequests | None = None
        self._may_be_outdated = False
        """What our AdminClient knows of who is there: a question had no answer."""
        self._reason = ""
        self._message_bytes_max: int | None = None

    def open_producer(self, ledger: LedgerKey) -> LibrdkafkaProducer:
        largest = self._settings.message_bytes_max or self._message_bytes_max
        settings = replace(self._settings, message_bytes_max=largest)
        group = self._reader(ledger)
        return LibrdkafkaProducer.open(self._options, settings, ledger, group, self._direct, self._limit)

    def read_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        try:
            answer = self._reader(ledger).committed([TopicPartition(ledger.topic, 0)], timeout=_REQUEST_S)[0]
        except KafkaException as e:
            raise self._why_no_answer(e.args[0], ledger) from e
        return self._entry(ledger, answer)

    def newest_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        reader = self._reader(ledger)
        try:
            if not self._ledger_topics.has_two_partitions(ledger.topic, reader):
                return self.read_ledger(ledger)
            answer = self._newest[ledger].read(reader, _REQUEST_S)
        except KafkaException as e:
            raise self._why_no_answer(e.args[0], ledger) from e
        return self._entry(ledger, answer)

    def ensure_ledger_topic(self, topic: str) -> None:
        known = self.describe_topics([topic]).get(topic)
        try:
            if known is None:
                self._ledger_topics.create(topic, self._admin())
            elif known.partitions < 2:
                self._ledger_topics.extend(topic, self._admin())
        except KafkaException as e:
            raise self._failed(e.args[0], "create the ledger topic", f"Topic {topic}") from e

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        for topic in topics:
            try:
                # A consumer's handle, since a producer's would create the topic.
                metadata = self._lookup().list_topics(topic, timeout=_REQUEST_S).topics[topic]
            except KafkaException as e:
                raise self._failed(e.args[0], "look up the topic", f"Topic {topic}") from e
            if metadata.error is None:
                found[topic] = self._with_config(topic, len(metadata.partitions))
            elif metadata.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise denied("look up the topic", f"Topic {topic}", "DESCRIBE", metadata.error.name())
            elif metadata.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise self._failed(metadata.error, "look up the topic", f"Topic {topic}")
        return found

    def offsets_retention_ms(self) -> int:
        """Brokers may hide their configuration: Kafka's default then."""
        try:
            brokers = self._lookup().list_topics("", timeout=_REQUEST_S).brokers
        except KafkaException as e:
            raise self._failed(e.args[0], "look up the brokers", "Cluster") from e
        config = self._config(ConfigResource(ResourceType.BROKER, str(min(brokers))))
        minutes = config.get("offsets.retention.minutes")
        return int(minutes) * 60_000 if minutes else _DEFAULT_OFFSETS_RETENTION_MS

    def commit_prepared(self, transactional_id: str, identity: ProducerIdentity) -> bool:
        return self._requests().commit(transactional_id, identity)

    def fence(self, transactional_ids: Sequence[str]) -> None:
        for transactional_id in transactional_ids:
            self._requests().fence(transactional_id, self._settings.transaction_timeout_ms)

    def read_ledgers(self, ledgers: Sequence[LedgerKey]) -> Sequence[LedgerEntry | None]:
        # Each by its own reader: an AdminClient that asks a broker which is no coordinator ends the process.
        return [self._read_once(ledger) for ledger in ledgers]

    def _read_once(self, ledger: LedgerKey) -> LedgerEntry | None:
        is_known = ledger in self._readers
        try:
            return self.newest_ledger(ledger)
        finally:
            if not is_known and ledger in self._readers:
                self._readers.pop(ledger).close()
                self._newest.pop(ledger)

    def close(self) -> None:
        if self._coordinators is not None:
            self._coordinators.close()
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
        self._admin_client = None

    @staticmethod
    def _entry(ledger: LedgerKey, answer: TopicPartition) -> LedgerEntry | None:
        """What was answered for the ledger. None: never written."""
        # The error of one partition is not raised: without this check it would look like "never written".
        if answer.error is not None:
            action, resource = "read the ledger", f"Group {ledger.transactional_id}"
            if answer.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise denied(action, f"Topic {ledger.topic}", "READ and DESCRIBE", answer.error.name())
            raise failure(answer.error, action, resource)
        return LedgerEntry(int(answer.offset), answer.metadata or "") if answer.offset >= 0 else None

    def _with_config(self, topic: str, partitions: int) -> TopicDescription:
        config = self._config(ConfigResource(ResourceType.TOPIC, topic))
        if not config:
            return TopicDescription(partitions)
        message_bytes_max = int(config["max.message.bytes"])
        if "message.max.bytes" in self._options.librdkafka:
            message_bytes_max = min(
                message_bytes_max, int(str(self._options.librdkafka["message.max.bytes"]))
            )
        # A record may be as large as its own topic takes, a batch of several as the smallest of them does.
        self._message_bytes_max = max(message_bytes_max, self._message_bytes_max or 0)
        self._limit.at_most(message_bytes_max)
        return TopicDescription(
            partitions,
            message_bytes_max,
            int(config["retention.ms"]) if "delete" in config["cleanup.policy"] else -1,
            config["message.timestamp.type"] == "LogAppendTime",
        )

    def _config(self, resource: ConfigResource) -> dict[str, str]:
        """{} if the user may not read it (DESCRIBE_CONFIGS is not needed for the guarantee)."""
        try:
            answer = self._admin().describe_configs([resource], request_timeout=_REQUEST_S)[resource].result()
        except KafkaException as e:
            if e.args[0].code() in (
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            ):
                return {}
            raise self._failed(e.args[0], "read the configuration", str(resource)) from e
        return {name: entry.value for name, entry in answer.items() if entry.value is not None}

    def _why_no_answer(self, error: KafkaError, ledger: LedgerKey) -> Exception:
        """A read that times out may be a pending transaction, a missing ACL, or a broker that is away."""
        from_connection = self._failed(error, "read the ledger", f"Group {ledger.transactional_id}")
        if isinstance(from_connection, Fatal) or error.code() != KafkaError._TIMED_OUT:
            return from_connection
        with closing(self._consumer(ledger.transactional_id, "read_uncommitted")) as anyway:
            try:
                ask_for_group(self._admin(), ledger.transactional_id, _REQUEST_S)
                answer = anyway.committed([TopicPartition(ledger.topic, 0)], timeout=_REQUEST_S)[0]
            except KafkaException as e:
                return self._failed(e.args[0], "read the ledger", f"Group {ledger.transactional_id}")
        if answer.error is not None:
            return self._failed(answer.error, "read the ledger", f"Group {ledger.transactional_id}")
        return Retryable(
            f"the ledger of {ledger.transactional_id} waits for a transaction that the broker has not ended; "
            "if this lasts, `onceflow transactions list` shows whether its markers are lost "
            "(Kafka 4.3.0 to 4.4.0)"
        )

    def _failed(self, error: KafkaError, action: str, resource: str) -> Exception:
        for client in [*self._readers.values(), self._admin_client]:
            if client is not None:
                client.poll(0)  # serves the error callback, which knows more than the exception
        self._may_be_outdated = self._may_be_outdated or error.code() in AWAY
        known = connection_failure(self._reason, self._options.bootstrap_servers)
        if known is not None:
            return type(known)(self._options.redact(str(known)))
        explained = failure(error, action, resource)
        return type(explained)(
            self._options.redact(f"{explained}{'; ' + self._reason if self._reason else ''}")
        )

    def _reader(self, ledger: LedgerKey) -> Consumer:
        """Never subscribed, so it joins no group: it reads committed offsets and names the group."""
        if ledger not in self._readers:
            newest = self._newest[ledger] = NewestOffsets(ledger.topic)
            self._readers[ledger] = self._consumer(ledger.transactional_id, on_commit=newest.on_commit)
        return self._readers[ledger]

    def _lookup(self) -> Consumer:
        return next(iter(self._readers.values()), None) or self._reader(LedgerKey("onceflow-lookup", ""))

    def _consumer(self, group_id: str, isolation: Isolation = "read_committed", **callbacks: Any) -> Consumer:
        ours: dict[str, Any] = {"error_cb": self._on_error, "logger": LOG, **callbacks}
        try:
            return group_reader(self._options, group_id, isolation, ours, _QUICK)
        except KafkaException as e:
            raise OptionError(
                f"librdkafka refuses its settings: {self._options.redact(e.args[0].str())}"
            ) from e

    def _requests(self) -> CoordinatorRequests:
        if self._coordinators is None:
            access = access_of(self._options.of_producers())
            if access is None:
                raise OptionError(
                    "a transaction that is prepared is committed past librdkafka, and the files that the "
                    "settings ssl.* name can't be used so: have them readable where the slots run"
                )
            timeout_s = self._settings.request_ms(self._options) / 1000
            self._coordinators = CoordinatorRequests(self._nodes, access, timeout_s)
        return self._coordinators

    def _nodes(self) -> Sequence[Node]:
        try:
            brokers = self._lookup().list_topics("", timeout=_REQUEST_S).brokers
        except KafkaException as e:
            raise self._failed(e.args[0], "look up the brokers", "Cluster") from e
        return [Node(each.host, each.port) for each in brokers.values()]

    def _admin(self) -> AdminClient:
        if self._admin_client is None:
            self._admin_client = AdminClient(self._options.admin({"error_cb": self._on_error, "logger": LOG}))
        elif self._may_be_outdated:
            self._may_be_outdated = not learn_who_is_there(self._admin_client, _REQUEST_S)
        return self._admin_client

    def _on_error(self, error: KafkaError) -> None:
        # That all brokers are down follows each refusal, and would hide why.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._reason:
            self._reason = error.str()
