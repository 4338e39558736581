"""Google Cloud Pub/Sub: subscriptions, acknowledged when a checkpoint is complete."""

from onceflow.connectors.pubsub.source import PubSubSource

__all__ = ["PubSubSource"]
