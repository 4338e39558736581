"""What the sink decides about its producers, and librdkafka's settings that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from onceflow.connectors.kafka.options import KafkaOptions, Setting
from onceflow.connectors.kafka.protocol.eligibility import PAUSE_S, is_switched_on

RouteName: TypeAlias = Literal["direct", "bulk", "one by one"]
DIRECT_VARIABLE = "ONCEFLOW_DIRECT_PRODUCE"
"""`off`: all is written by librdkafka."""

STATISTICS_MS = 20
_MESSAGE_BYTES = 1_000_000  # librdkafka's default
MESSAGE_BYTES_MAX = 1_000_000_000
"""The most that librdkafka takes."""
_SILENCE_MS_MAX = 300_000  # as much as librdkafka takes


def best_route() -> RouteName:
    """The quickest route that the environment variables allow where a sink is opened."""
    return "direct" if is_switched_on(DIRECT_VARIABLE) else "bulk"


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What the sink decides about its producers."""

    transaction_timeout_ms: int = 120_000
    socket_timeout_ms: int = 10_000
    message_bytes_max: int | None = None
    """The largest max.message.bytes of the topics. None: of those that the client has looked up."""
    route: RouteName = "direct"
    """The best that may be used: see produce.py."""
    direct_pause_s: float = PAUSE_S
    """How long nothing is sent directly after a fault of the direct route."""

    def request_ms(self, options: KafkaOptions) -> int:
        """How long one request may take."""
        given = options.librdkafka.get("socket.timeout.ms", self.socket_timeout_ms)
        return min(int(str(given)), self.silence_ms())

    def silence_ms(self) -> int:
        """The time without an answer after which librdkafka breaks a connection. A broker that throttles us
        may well be silent for much longer than request_ms, and a connection that is broken because of it
        costs the transaction, which is then sent again under the same quota; only its timeout bounds that.
        The callers' own deadlines are what notices a broker that is silent for another reason."""
        return min(self.transaction_timeout_ms, _SILENCE_MS_MAX)

    def batch_bytes(self, options: KafkaOptions) -> int:
        """The largest batch of several records, in bytes before compression."""
        return int(str(options.librdkafka.get("batch.size", DEFAULTS["batch.size"])))

    def message_bytes(self, options: KafkaOptions) -> int:
        """The largest batch of any kind, in bytes, as far as is known before a broker refuses one."""
        given = int(str(options.librdkafka.get("message.max.bytes", _MESSAGE_BYTES)))
        return given if self.message_bytes_max is None else self.message_bytes_max

    def librdkafka(
        self, options: KafkaOptions, transactional_id: str, batch_bytes_max: int
    ) -> dict[str, Setting]:
        """The settings that a user can't override."""
        ours: dict[str, Setting] = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "statistics.interval.ms": STATISTICS_MS,
            "socket.timeout.ms": self.silence_ms(),
            "batch.size": batch_bytes_max,
        }
        if self.message_bytes_max is not None:
            ours["message.max.bytes"] = max(1000, min(self.message_bytes_max, MESSAGE_BYTES_MAX))
        return ours


DEFAULTS: dict[str, Setting] = {
    "linger.ms": 1,  # records come many at a time: waiting for more is waiting for nothing
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 131_072,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
}
"""The defaults that a user may override."""
