"""DirectChoice: whether the records of a client's producers go to the brokers directly."""

from __future__ import annotations

import logging
import time
from functools import partial

from confluent_kafka import Consumer, Producer

from onceflow.connectors.kafka.client import LedgerKey, ProducerIdentity
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.batch_limit import BatchLimit
from onceflow.connectors.kafka.produce.leaders import Leaders
from onceflow.connectors.kafka.produce.route import Route
from onceflow.connectors.kafka.protocol.broker_access import HONOURED as OF_ACCESS
from onceflow.connectors.kafka.protocol.broker_access import access_of, may_access
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.records.compression import codec_of
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.kernels.ops import ops

_LOG = logging.getLogger(__name__)
_NAMES = """
    batch.size client.id client.rack compression.codec compression.level compression.type
    connections.max.idle.ms debug enable.metrics.push linger.ms log.connection.close log.queue
    log.thread.name log_level message.copy.max.bytes message.max.bytes metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
    queue.buffering.max.ms reconnect.backoff.jitter.ms reconnect.backoff.max.ms reconnect.backoff.ms
    retry.backoff.max.ms retry.backoff.ms security.protocol socket.blocking.max.ms
    socket.connection.setup.timeout.ms socket.max.fails socket.nagle.disable socket.timeout.ms
    sticky.partitioning.linger.ms topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms
    topic.metadata.refresh.sparse
"""
_HONOURED = frozenset(_NAMES.split()) | OF_ACCESS
"""The settings that a direct producer honours, too, and those about what remains librdkafka's own work or
is no writer's. With any other one, or one that is not known yet, records are librdkafka's."""
_COMPRESSION = ("compression.type", "compression.codec")
"""Two names of one setting."""
_NO_LIMIT = 1 << 31


class DirectChoice:
    """Whether one client writes directly. After a failure librdkafka has its turn for a while: it knows how
    to wait, and to say what is wrong."""

    def __init__(self, options: KafkaOptions, limit: BatchLimit, mute_s_max: float, pause_s: float) -> None:
        """`limit`: of its batches. `mute_s_max`: see ProduceConnection. `pause_s`: how long librdkafka
        has its turn after a failure."""
        settings = options.of_producers()
        level = int(str(settings.get("compression.level", -1)))
        names = {str(settings[name]) for name in _COMPRESSION if name in settings} or {"none"}
        self._codec = codec_of(min(names), None if level < 0 else level) if len(names) == 1 else None
        self.is_possible = (
            may_access(settings)
            and settings.keys() <= _HONOURED
            and (self._codec is not None or names == {"none"})
            and ops().are_compiled
        )
        """Whether the settings allow it at all, and there are the kernels that write batches."""
        self._access = access_of(settings) if self.is_possible else None
        self._message_bytes_max = int(str(settings.get("message.max.bytes", _NO_LIMIT)))
        self._limit = limit
        self._mute_s_max = mute_s_max
        self._pause_s = pause_s
        self._not_before_s = 0.0

    def open(
        self,
        producer: Producer,
        consumer: Consumer,
        ledger: LedgerKey,
        identity: ProducerIdentity,
        message_bytes_max: int | None,
        timeout_s: float,
    ) -> Route | None:
        """The direct route; None: not now, or never. `message_bytes_max`: the topic's, if known: no batch may
        be larger."""
        if self._access is None or time.monotonic() < self._not_before_s:
            return None
        from onceflow.connectors.kafka.produce.direct import DirectRoute, ProduceSettings  # imports numba

        largest = min(self._message_bytes_max, message_bytes_max or _NO_LIMIT)
        settings = ProduceSettings(min(self._limit.bytes_max, largest), largest, timeout_s, self._codec)
        leaders = Leaders(consumer, ledger, self._access, timeout_s, self._mute_s_max)
        try:
            leaders.coordinator()  # a broker that is too old says so here, and not in a transaction
        except (OSError, ProtocolError, OnceflowError) as error:
            leaders.close()
            self._failed(str(error))
            return None
        route_of = partial(DirectRoute, limit=self._limit, on_failure=self._failed)
        return route_of(producer, leaders, ledger.transactional_id, identity, settings)

    def _failed(self, reason: str) -> None:
        self._not_before_s = time.monotonic() + self._pause_s
        _LOG.info("librdkafka goes on writing: %s", reason)
