"""ReaderOptions: how a reader's librdkafka consumer is set up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceflow.connectors.kafka.fetch.direct_reading import DirectReading
from onceflow.connectors.kafka.options import Isolation, KafkaOptions
from onceflow.connectors.kafka.source.broker_health import STATISTICS_INTERVAL_MS, ReaderConnection
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.contracts.batch_size import RECORDS_MAX

_LOG = logging.getLogger(__name__)

DEFAULTS: dict[str, Any] = {
    # librdkafka's own second of pause when its queue is full leaves a fast reader without records.
    "fetch.queue.backoff.ms": 10,
    # A record in the queue takes about 400 bytes beside its own. So many last for 50 ms of a fast job,
    # several of the pauses above; with 200,000 and 8 MiB a slot holds 120 MB more and is no faster.
    "queued.min.messages": 50_000,
    "max.partition.fetch.bytes": 2 << 20,
    # For large records; also what all partitions of one broker may answer at once.
    "queued.max.messages.kbytes": 32_768,
    # How long a fetch that finds nothing waits at the broker, so how long an end goes unnoticed. Records
    # that arrive meanwhile come at once.
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
}


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What KafkaSource tells its readers."""

    kafka: KafkaOptions
    isolation: Isolation
    group_id: str | None
    broker_timeout_ms: int
    poll_records_max: int = RECORDS_MAX
    """What its memory is laid out for. A poll may ask for fewer."""
    direct: DirectReading | None = None
    """How a backlog is read from the brokers past librdkafka; None: it is not."""

    def consumer(self, context: ReaderContext, connection: ReaderConnection) -> dict[str, Any]:
        """The settings of a reader's consumer."""
        ours: dict[str, Any] = {
            # confluent-kafka asks for a group even if it is never joined.
            "group.id": self.group_id or f"onceflow.{context.job}.{context.uid}",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": self.isolation,
            "statistics.interval.ms": STATISTICS_INTERVAL_MS,
            "error_cb": connection.on_error,
            "stats_cb": connection.on_statistics,
            "throttle_cb": self._throttle_callback(connection),
            "logger": _LOG,
        }
        return self.kafka.consumer(ours, DEFAULTS)

    def _throttle_callback(self, connection: ReaderConnection) -> Callable[[Any], None]:
        theirs = self.kafka.librdkafka.get("throttle_cb")
        if not callable(theirs):
            return connection.on_throttle

        def both(event: Any) -> None:
            connection.on_throttle(event)
            theirs(event)

        return both
