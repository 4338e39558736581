"""A message of Pub/Sub as the reader of queues takes it. Pure."""

from __future__ import annotations

from typing import Any

from onceflow.connectors.acknowledged.messages import Message
from onceflow.connectors.message_fields import attribute

PUBLISH_TIME, ORDERING_KEY = "publish_time", "ordering_key"


def message_of(received: Any, tag: int, began_ms: int) -> Message:
    """A message as it came. One that was published since the connection began can't have been delivered
    before."""
    message = received.message
    published_us = message.publish_time.seconds * 1_000_000 + message.publish_time.nanos // 1_000
    known: dict[str, object] = {attribute(name): value for name, value in message.attributes.items()}
    known[PUBLISH_TIME] = published_us
    known[ORDERING_KEY] = message.ordering_key or None
    return Message(message.message_id, message.data, tag, published_us < began_ms * 1_000, known)
