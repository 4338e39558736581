"""RabbitMQ: queues, acknowledged when a checkpoint is complete, and streams, read by offset."""

from onceflow.connectors.rabbitmq.queue_source import RabbitQueueSource
from onceflow.connectors.rabbitmq.stream_source import RabbitStreamSource

__all__ = ["RabbitQueueSource", "RabbitStreamSource"]
