"""How far an output topic is, seen from outside: what is committed, and whether more is being written."""

from __future__ import annotations

import contextlib
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from onceflow.connectors.kafka.options import KafkaOptions


class OutputWatch:
    """How far an output topic is: what is committed, and whether a transaction is being written."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._admin = AdminClient(KafkaOptions(bootstrap_servers, {"log_level": 0}).admin())
        self._ends: Any = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}
        self.committed = 0
        self.is_writing = False

    def look(self) -> None:
        """Ask the broker; a broker that is away leaves what was seen last."""
        with contextlib.suppress(KafkaException):
            stable = self._offsets(IsolationLevel.READ_COMMITTED)
            ends = self._offsets(IsolationLevel.READ_UNCOMMITTED)
            self.committed, self.is_writing = stable, ends > stable

    def _offsets(self, level: IsolationLevel) -> int:
        """One request for all partitions: a transaction is open for a tenth of a second."""
        asked = self._admin.list_offsets(self._ends, isolation_level=level, request_timeout=1.0)
        return sum(future.result().offset for future in asked.values())
