"""A run as the broker sees it: when the input began to flow, and how much of the output readers can see.

The same for every engine, and it asks nothing of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition

_FETCHED_BYTES = 64 * 1024
_WITHIN_S = 0.25
_TIMEOUT_S = 10.0


class InputWatch:
    """Notices the first fetch of the input: the broker's process sends much more than it did so far.

    Before a job reads, the broker answers with some hundred bytes at a time; the first fetch of a
    backlog is at least 64 KiB. `written_bytes` is what the process has written in all, files and
    sockets, as the operating system counts it.
    """

    def __init__(self) -> None:
        self.first_read_s: float | None = None
        """Wall-clock time of the first fetch, or None as long as there was none."""
        self._seen: deque[tuple[float, int]] = deque()

    def look(self, at_s: float, written_bytes: int) -> None:
        if self.first_read_s is not None:
            return
        self._seen.append((at_s, written_bytes))
        while len(self._seen) > 2 and self._seen[1][0] < at_s - _WITHIN_S:
            self._seen.popleft()
        if written_bytes - self._seen[0][1] >= _FETCHED_BYTES:
            self.first_read_s = at_s


def bytes_written(process: psutil.Process) -> int:
    """What this process has written to files and sockets. Linux only."""
    counters: Any = process.io_counters()
    return int(counters.write_chars)


class OutputWatch:
    """How far readers of committed records can see: offsets, transaction markers included."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        open_consumer: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self._open_consumer = open_consumer
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "onceflow-bench",  # never joined
            "isolation.level": "read_committed",
            "log_level": 2,
        }
        self._consumer = self._open_consumer(self._settings)
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.visible = 0
        self.last_change_s: float | None = None
        """Wall-clock time of the last look that saw more than the one before."""

    def look(self, at_s: float) -> None:
        try:
            ends = [self._consumer.get_watermark_offsets(p, timeout=_TIMEOUT_S) for p in self._partitions]
        except KafkaException:
            # A new topic may have no leader yet, nor has any topic of a broker that was silent for too long.
            # A consumer that saw it so never finds the leader that comes (librdkafka, issue 5430).
            self._consumer.close()
            self._consumer = self._open_consumer(self._settings)
            return
        visible = sum(high for _, high in ends)
        if visible > self.visible:
            self.visible, self.last_change_s = visible, at_s

    def close(self) -> None:
        self._consumer.close()
