"""Transactions that hold readers back: open ones, and hanging ones that the broker has forgotten.

A broker of Kafka 4.3.0 to 4.4.0 that is killed after it promised a commit may never write the markers
that end it (KAFKA-20734). Readers under read_committed then stop for ever, and neither a restart nor a
timeout nor the writer helps: the coordinator believes that all is done. Such a transaction is found by
comparing what the partitions say with what the coordinator says, and ended by writing the markers.

kafka-python, since librdkafka knows none of these requests.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, UnknownBrokerIdError  # pyright: ignore[reportAttributeAccessIssue]
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest
from kafka.structs import TopicPartition
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.protocol.broker_access import kafka_python
from onceflow.connectors.kafka.transactions.coordinators import list_all_transactions
from onceflow.runtime.errors import Retryable, UsageError

OFFSETS_TOPIC = "__consumer_offsets"
_LIVE = {"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"}
_OUTCOMES = {"CompleteCommit": "commit", "CompleteAbort": "abort"}
_MARKERS_VERSION = 1
logging.getLogger("kafka").addHandler(logging.NullHandler())  # else each failed connection is on stderr
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction id whose coordinator says that it is not over."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    started_ms: int
    timeout_ms: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StuckPartition:
    """A partition that waits for the end of a transaction."""

    topic: str
    partition: int
    coordinator_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """Open in partitions, over for its coordinator: nothing but a repair ends it.

    `outcome`: "commit" or "abort" as the coordinator recorded it, None if it does not know any more.
    """

    producer_id: int
    producer_epoch: int
    transactional_id: str | None
    outcome: str | None
    stuck: tuple[StuckPartition, ...]

    @property
    def holds_ledger(self) -> bool:
        """Whether the group's offset, written last of all, waits too: then all of its records are there,
        and committing and aborting are both consistent."""
        return any(partition.topic == OFFSETS_TOPIC for partition in self.stuck)


class TransactionDoctor:
    """Finds and ends transactions. Close it, or use it in a with statement."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._admin: Any = self._connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that their coordinators know as not over."""
        return [
            OpenTransaction(
                name,
                int(found.producer_id),
                int(found.producer_epoch),
                str(found.state.value),
                int(found.transaction_start_time_ms),
                int(found.transaction_timeout_ms),
                tuple(sorted(f"{tp.topic}-{tp.partition}" for tp in found.topic_partitions)),
            )
            for name, found in self._described().items()
            if found.state.value in _LIVE
        ]

    def hanging(self, topics: Sequence[str]) -> list[HangingTransaction]:
        """The hanging transactions that hold back these topics or the offsets of any group.

        Partitions, then coordinators, then partitions again: what both looks at the partitions have
        and no coordinator owns in between hangs, and is no transaction that was just beginning or ending.
        """
        partitions = self._partitions([*topics, OFFSETS_TOPIC])
        before = self._open_rows(partitions)
        owners = {found.producer_id: (name, found) for name, found in self._described().items()}
        after = self._open_rows(partitions)
        stuck: dict[tuple[int, int], list[StuckPartition]] = defaultdict(list)
        for (producer_id, epoch), rows in before.items():
            owner = owners.get(producer_id)
            if not _is_live(owner, epoch):
                stuck[producer_id, epoch] += [
                    row for row in rows if row in after.get((producer_id, epoch), [])
                ]
        return [
            self._hanging(producer_id, epoch, owners.get(producer_id), rows)
            for (producer_id, epoch), rows in sorted(stuck.items())
            if rows
        ]

    def repair(self, hanging: HangingTransaction, outcome: str) -> None:
        """Write the missing markers, "commit" or "abort", into every stuck partition."""
        for partition in hanging.stuck:
            self._ask("write a marker", partial(self._write_marker, hanging, partition, outcome == "commit"))

    def choose_outcome(self, hanging: HangingTransaction, wanted: str | None) -> str:
        """What to do with it: as the coordinator recorded it, else abort, which our own sink answers by
        writing the output again. Raises UsageError where that could break the output of others."""
        if wanted is not None:
            return wanted
        if hanging.outcome is not None:
            return hanging.outcome
        if hanging.holds_ledger:
            return "abort"
        raise UsageError(
            f"producer {hanging.producer_id}: the coordinator does not know any more whether it was "
            "committed: look whether its records are visible in other partitions, then give "
            "--as commit or --as abort"
        )

    def owners(self, topic: str, partitions: Iterable[int]) -> dict[tuple[int, int], tuple[int, str | None]]:
        """Who has transactions open in these partitions: (partition, first offset) to producer id and
        transactional id, None if no coordinator knows the producer."""
        listed = self._listed()
        names = {row.producer_id: row.transactional_id for row in listed}
        rows = self._open_rows([TopicPartition(topic, partition) for partition in partitions])
        return {
            (row.partition, row.start_offset): (producer_id, names.get(producer_id))
            for (producer_id, _), found in rows.items()
            for row in found
        }

    def _ask(self, what: str, question: Callable[[Any], Any]) -> Any:
        """Answers fail for seconds while a broker starts or has just died, or a leader moves. A client that
        failed goes on asking whom it knows, dead or not: the next one learns anew who is there."""

        def ask() -> Any:
            self._admin = self._admin or self._connected()
            try:
                return question(self._admin)
            except KafkaError:
                self._disconnect()
                raise

        patience = Retrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(_PATIENCE_S),
            wait=wait_exponential(0.05, max=1),
            reraise=True,
        )
        try:
            return patience(ask)
        except KafkaError as e:
            raise Retryable(f"Kafka refused to {what}: {self._options.redact(str(e))}") from e

    def _connected(self) -> Any:
        try:
            return KafkaAdminClient(**kafka_python(self._options))
        except KafkaError as e:
            servers = self._options.bootstrap_servers
            raise Retryable(f"no answer from {servers}: {self._options.redact(str(e))}") from e

    def _disconnect(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._admin = None

    def _hanging(
        self, producer_id: int, epoch: int, owner: tuple[str, Any] | None, rows: Sequence[StuckPartition]
    ) -> HangingTransaction:
        outcome = None
        if owner is not None and owner[1].producer_epoch == epoch:
            outcome = _OUTCOMES.get(owner[1].state.value)
        return HangingTransaction(producer_id, epoch, owner[0] if owner else None, outcome, tuple(rows))

    def _described(self) -> Mapping[str, Any]:
        names = sorted({row.transactional_id for row in self._listed()})
        if not names:
            return {}
        described: Mapping[str, Any] = self._ask(
            "describe transactions", lambda admin: admin.describe_transactions(names)
        )
        return described

    def _listed(self) -> list[Any]:
        """All transactional ids that any coordinator knows."""
        listed: list[Any] = self._ask("list transactions", list_all_transactions)
        return listed

    def _partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        names = list(topics)
        for topic in self._ask("describe topics", lambda admin: admin.describe_topics(names)):
            if topic["error_code"] == 0:
                found += [TopicPartition(topic["name"], p["partition_index"]) for p in topic["partitions"]]
            elif topic["name"] != OFFSETS_TOPIC:
                raise UsageError(f"topic {topic['name']!r} does not exist, or its DESCRIBE is not allowed")
        return found

    def _open_rows(self, partitions: Sequence[TopicPartition]) -> dict[tuple[int, int], list[StuckPartition]]:
        rows: dict[tuple[int, int], list[StuckPartition]] = defaultdict(list)
        described = self._ask("describe producers", lambda admin: admin.describe_producers(partitions))
        for partition, state in described.items():
            for producer in state.active_producers:
                if producer.current_transaction_start_offset >= 0:
                    rows[producer.producer_id, producer.producer_epoch].append(
                        StuckPartition(
                            partition.topic,
                            partition.partition,
                            producer.coordinator_epoch,
                            producer.current_transaction_start_offset,
                        )
                    )
        return rows

    @staticmethod
    def _write_marker(
        hanging: HangingTransaction, partition: StuckPartition, is_commit: bool, admin: Any
    ) -> None:
        marker_type = WriteTxnMarkersRequest.WritableTxnMarker
        topic_type = marker_type.WritableTxnMarkerTopic
        marker = marker_type(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            transaction_result=is_commit,
            topics=[topic_type(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=max(partition.coordinator_epoch, 0),
        )
        at = TopicPartition(partition.topic, partition.partition)

        async def send() -> Any:
            leaders = await admin._async_get_leader_for_partitions([at])
            request = WriteTxnMarkersRequest(markers=[marker], max_version=_MARKERS_VERSION)
            return await admin._manager.send(request, node_id=next(iter(leaders)))

        response = admin._manager.run(send)
        codes = [p.error_code for m in response.markers for t in m.topics for p in t.partitions]
        if any(codes):
            raise Retryable(
                f"the marker for {partition.topic}-{partition.partition} was refused: error {codes}"
            )


def _is_passing(error: BaseException) -> bool:
    is_gone = isinstance(error, UnknownBrokerIdError)  # it left the cluster after it was named
    return isinstance(error, KafkaError) and bool(error.retriable or is_gone)


def _is_live(owner: tuple[str, Any] | None, epoch: int) -> bool:
    """Whether the coordinator will still end it: it is being ended, or its writer may end it."""
    if owner is None or owner[1].state.value not in _LIVE:
        return False
    return bool(owner[1].state.value != "Ongoing" or owner[1].producer_epoch == epoch)
