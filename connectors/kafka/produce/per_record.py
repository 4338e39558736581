"""OneByOneRoute: each record by `produce()`, with a delivery callback: BulkRoute's work, the public way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from onceflow.connectors.kafka.produce.batch_limit import TOO_LARGE, RefusedBatch

_POLL_S = 0.05


class OneByOneRoute:
    """See Route in produce.py: confluent-kafka's public interface and nothing else."""

    def __init__(self, producer: Producer) -> None:
        self.delivered = 0
        self.first_failure: tuple[KafkaError, str] | None = None
        self.refused: RefusedBatch | None = None
        self._producer: Producer | None = producer

    @property
    def may_commit(self) -> bool:
        return True

    def begin(self) -> None:
        self.delivered = 0
        self.first_failure = self.refused = None

    def send(self, rows: pa.RecordBatch, wait: Callable[[Callable[[], bool]], None]) -> None:
        producer = self._open
        produce, on_delivery = producer.produce, self._on_delivery
        columns = [column.to_pylist() for column in rows.columns]
        for topic, partition, key, value, header, time_ms in zip(*columns, strict=True):
            arguments: list[Any] = [topic, value, key, partition, on_delivery, None, time_ms or 0]
            if header is not None:
                arguments.append([(h["key"], h["value"]) for h in header])
            try:
                produce(*arguments)
            except BufferError:
                wait(lambda arguments=arguments: self._is_queued(arguments))  # type: ignore[misc]

    def poll(self, timeout_s: float) -> None:
        self._open.poll(timeout_s)

    def is_flushed(self, timeout_s: float) -> bool:
        return bool(self._open.flush(timeout_s) == 0)

    def abort(self) -> None: ...

    def close(self) -> None:
        self._producer = None

    @property
    def _open(self) -> Producer:
        assert self._producer is not None, "not closed"
        return self._producer

    def _is_queued(self, arguments: list[Any]) -> bool:
        self._open.poll(_POLL_S)
        try:
            self._open.produce(*arguments)
        except BufferError:
            return False
        return True

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.delivered += 1
            return
        if self.first_failure is None:
            self.first_failure = (error, str(message.topic()))
        if error.code() in TOO_LARGE:  # which of them were in one batch is not told
            key, size = message.key(), len(message)
            before = self.refused or RefusedBatch(str(message.topic()), 0, 0, key)
            self.refused = replace(before, records=before.records + 1, size=before.size + size)
