"""ClusterMetadata: what a source asks a Kafka cluster before and beside reading.

Every answer is fresh and within a deadline; a cluster that does not answer is a Retryable that says
why, one that refuses us a Fatal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from onceflow.connectors.kafka.failures import denied
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Fatal, OptionError, Retryable, Unavailable

Isolation = Literal["read_committed", "read_uncommitted"]
PartitionKey = tuple[str, int]
"""Topic and partition number."""

_LOG = logging.getLogger(__name__)
_AUTHENTICATION = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_SETTLING = (  # of a topic that has just been made, or whose leader is about to change
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)
_DENIED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now. `topic_id` is new whenever a topic of this name is made anew."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]

    @property
    def keys(self) -> list[PartitionKey]:
        return [(self.name, partition) for partition in self.partitions]


class LogEnd(NamedTuple):
    """Where a partition ends."""

    offset: int
    leader_epoch: int | None
    """The leader's, at that time: what lies before the offset is of this epoch or an older one. None: it is
    not known."""


class ClusterMetadata:
    """Used by one thread. `timeout_ms` bounds each question."""

    def __init__(self, options: KafkaOptions, clock: Clock, timeout_ms: int) -> None:
        self._options = options
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._last_error = "no answer"
        self._refusal: str | None = None
        settings = options.admin({"error_cb": self._on_error, "logger": _LOG})
        try:
            self._admin: AdminClient | None = AdminClient(settings)
        except KafkaException as error:
            said = options.redact(error.args[0].str())
            raise OptionError(f"librdkafka refuses its settings: {said}") from error

    def topic_names(self) -> list[str]:
        """All topics except Kafka's own (`__consumer_offsets`), sorted."""
        names = self._describe_cluster_topics()
        return sorted(name for name in names if not name.startswith("__"))

    def describe(self, names: Sequence[str]) -> dict[str, Topic]:
        """These topics; one that does not exist is not in the answer."""
        if not names:
            return {}
        futures = self._client.describe_topics(TopicCollection(list(names)))
        topics = {}
        for name, future in futures.items():
            found = self._answer(future, f"topic {name!r}", none_if=(KafkaError.UNKNOWN_TOPIC_OR_PART,))
            if found is not None:
                partitions = tuple(sorted(p.id for p in found.partitions))
                topics[name] = Topic(name, str(found.topic_id), partitions)
        return topics

    def offsets(
        self, wanted: Iterable[PartitionKey], at: Literal["earliest", "latest"] | int, isolation: Isolation
    ) -> dict[PartitionKey, int]:
        """The offset at the beginning, at the end (read_committed: the last stable offset), or of the
        first record at or after a time in ms (-1: there is none) for each partition."""
        return {key: found.offset for key, found in self._list(wanted, at, isolation).items()}

    def ends(self, wanted: Iterable[PartitionKey], isolation: Isolation) -> dict[PartitionKey, LogEnd]:
        """The end of each partition: as offsets(wanted, "latest", isolation)."""
        return self._list(wanted, "latest", isolation)

    def _list(
        self, wanted: Iterable[PartitionKey], at: Literal["earliest", "latest"] | int, isolation: Isolation
    ) -> dict[PartitionKey, LogEnd]:
        spec = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}.get(str(at))
        query = spec() if spec else OffsetSpec.for_timestamp(int(at))
        level = (
            IsolationLevel.READ_COMMITTED
            if isolation == "read_committed"
            else IsolationLevel.READ_UNCOMMITTED
        )
        found: dict[PartitionKey, LogEnd] = {}
        missing = {(topic, partition): TopicPartition(topic, partition) for topic, partition in wanted}
        deadline = self._clock.monotonic_ms() + self._timeout_ms
        while missing:
            futures = self._client.list_offsets(
                dict.fromkeys(missing.values(), query),
                isolation_level=level,
                request_timeout=self._timeout_ms / 1000,
            )
            for tp, future in futures.items():
                is_last_try = self._clock.monotonic_ms() > deadline
                answer = self._answer(
                    future, f"offsets of topic {tp.topic!r}", () if is_last_try else _SETTLING
                )
                if answer is not None:
                    epoch = answer.leader_epoch
                    is_known = epoch is not None and epoch >= 0
                    found[tp.topic, tp.partition] = LogEnd(answer.offset, epoch if is_known else None)
                    del missing[tp.topic, tp.partition]
            if missing:
                self._client.poll(0.1)
        return found

    def committed(self, group_id: str, wanted: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """What a consumer group has committed; partitions without a commit are not in the answer."""
        partitions = [TopicPartition(topic, partition) for topic, partition in wanted]
        request = [ConsumerGroupTopicPartitions(group_id, partitions)]
        futures = self._client.list_consumer_group_offsets(request, require_stable=True)
        found = self._answer(futures[group_id], f"offsets of group {group_id!r}")
        return {(tp.topic, tp.partition): tp.offset for tp in found.topic_partitions if tp.offset >= 0}

    def close(self) -> None:
        self._admin = None

    @property
    def _client(self) -> AdminClient:
        assert self._admin is not None, "metadata is asked after close"
        return self._admin

    def _describe_cluster_topics(self) -> Mapping[str, Any]:
        try:
            topics: Mapping[str, Any] = self._client.list_topics(timeout=self._timeout_ms / 1000).topics
        except KafkaException as error:
            self._client.poll(0)
            raise self._explain(error, "the list of topics", has_waited=True) from error
        return topics

    def _answer(self, future: Future[Any], what: str, none_if: tuple[int, ...] = ()) -> Any:
        """The future's result; None if the error is one of `none_if`."""
        deadline = self._clock.monotonic_ms() + self._timeout_ms
        while not future.done():
            wait([future], timeout=0.05)
            self._client.poll(0)  # serves _on_error
            if self._refusal is not None:
                raise Fatal(self._sentence(what, self._refusal))
            if self._clock.monotonic_ms() > deadline:
                raise Unavailable(self._sentence(what, self._last_error))
        try:
            return future.result()
        except KafkaException as error:
            if error.args[0].code() in none_if:
                return None
            raise self._explain(error, what) from error

    def _explain(self, error: KafkaException, what: str, has_waited: bool = False) -> Exception:
        cause: KafkaError = error.args[0]
        if cause.code() in _DENIED:
            return denied(f"get {what}", what.removeprefix("offsets of "), "DESCRIBE", cause.name())
        if self._refusal is not None or cause.code() in _AUTHENTICATION:
            return Fatal(self._sentence(what, self._refusal or cause.str()))
        timed_out = cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
        said = self._sentence(what, self._last_error if timed_out else cause.str())
        is_over = cause.code() == KafkaError._TIMED_OUT or (timed_out and has_waited)
        return Unavailable(said) if is_over else Retryable(said)

    def _sentence(self, what: str, reason: str) -> str:
        servers = self._options.bootstrap_servers
        return f"can't get {what} from Kafka at {servers}: {self._options.redact(reason)}"

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in _AUTHENTICATION:
            self._refusal = error.str()
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last_error == "no answer":
            self._last_error = error.str()
