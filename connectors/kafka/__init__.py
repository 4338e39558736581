"""Kafka: `KafkaSource` reads topics. Its sink is in onceflow.sinks.kafka.

Loaded when it is first used, so that `onceflow broker` and the like need no client library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceflow.connectors.kafka.source.source import KafkaSource

__all__ = ["KafkaSource"]


def __getattr__(name: str) -> Any:
    if name == "KafkaSource":
        # Here, since the commands that need a broker only would wait for librdkafka and Arrow.
        from onceflow.connectors.kafka.source.source import KafkaSource

        return KafkaSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
