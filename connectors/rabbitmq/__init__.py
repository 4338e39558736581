"""RabbitMQ: queues, acknowledged when a checkpoint is complete."""

from onceflow.connectors.rabbitmq.queue_source import RabbitQueueSource

__all__ = ["RabbitQueueSource"]
