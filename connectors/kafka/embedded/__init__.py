"""A Kafka broker of one's own, for tests and for trying things out: `EmbeddedKafka`."""

from onceflow.connectors.kafka.embedded.broker import EmbeddedKafka

__all__ = ["EmbeddedKafka"]
