"""DirectChoice: whether the records of a client's producers go to the brokers directly."""

from __future__ import annotations

import logging
import time

from confluent_kafka import Consumer, Producer

from onceflow.connectors.kafka.client import LedgerKey, ProducerIdentity
from onceflow.connectors.kafka.direct import PAUSE_S, may_be_direct
from onceflow.connectors.kafka.leaders import Leaders
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce import Route
from onceflow.connectors.kafka.produce_direct import DirectRoute, ProduceSettings
from onceflow.connectors.kafka.record_codecs import codec_of
from onceflow.connectors.kafka.wire import ProtocolError
from onceflow.runtime.errors import OnceflowError

_LOG = logging.getLogger(__name__)
DIRECT_VARIABLE = "ONCEFLOW_DIRECT_PRODUCE"
"""`off`: all is written by librdkafka."""
_BATCH_BYTES_MAX = 1_000_000
_NO_LIMIT = 1 << 31
_CLIENT_ID = "rdkafka"  # librdkafka's default


class DirectChoice:
    """One client's. After a failure librdkafka has its turn for a while: it knows how to wait, and to say
    what is wrong."""

    def __init__(self, options: KafkaOptions) -> None:
        settings = options.librdkafka
        self._compression = str(settings.get("compression.type", settings.get("compression.codec", "none")))
        level = int(str(settings.get("compression.level", -1)))
        self._compression_level = None if level < 0 else level
        self._is_possible = may_be_direct(settings, DIRECT_VARIABLE)
        self._client_id = str(settings.get("client.id", _CLIENT_ID))
        self._batch_bytes_max = int(str(settings.get("batch.size", _BATCH_BYTES_MAX)))
        self._message_bytes_max = int(str(settings.get("message.max.bytes", _NO_LIMIT)))
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
        """None: not now, or never. `message_bytes_max`: of the topic, if known: no batch may be larger."""
        if not self._is_possible or time.monotonic() < self._not_before_s:
            return None
        codec = codec_of(self._compression, self._compression_level)
        if codec is None and self._compression != "none":
            return None

        largest = min(self._message_bytes_max, message_bytes_max or _NO_LIMIT)
        settings = ProduceSettings(min(self._batch_bytes_max, largest), largest, timeout_s, codec)
        leaders = Leaders(consumer, ledger, self._client_id, timeout_s)
        try:
            leaders.coordinator()  # a broker that is too old says so here, and not in a transaction
        except (OSError, ProtocolError, OnceflowError) as error:
            leaders.close()
            self._failed(str(error))
            return None
        return DirectRoute(producer, leaders, ledger.transactional_id, identity, settings, self._failed)

    def _failed(self, reason: str) -> None:
        self._not_before_s = time.monotonic() + PAUSE_S
        _LOG.info("librdkafka goes on writing: %s", reason)
