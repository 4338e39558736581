"""RabbitDeliveries: one queue of RabbitMQ, consumed on a thread of its own."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import pika
from pika.exceptions import AMQPError

from onceflow.connectors.acknowledged.messages import Message
from onceflow.connectors.acknowledged.threaded_deliveries import ThreadedDeliveries
from onceflow.connectors.rabbitmq.connections import meaning, parameters
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import Fatal, Retryable

_WAIT_S = 0.2
_ALIVE_MS = 1_000
"""How often the server is asked whether it is there."""


class RabbitDeliveries(ThreadedDeliveries):
    """Deliveries of one queue, as its only consumer. `prefetch`: how many may be unacknowledged at once."""

    def __init__(
        self,
        url: str,
        queue: str,
        prefetch: int,
        id_header: str | None,
        looks_for_end: bool,
        context: ReaderContext,
    ) -> None:
        super().__init__(f"queue {queue!r}", context)
        self._url, self._queue, self._prefetch, self._id_header = url, queue, prefetch, id_header
        self._looks_for_end = looks_for_end
        self._alive_ms = 0.0
        self._count = 0
        """How many messages have come."""
        self._connection: Any = None
        self._channel: Any = None
        self.start()

    @property
    def alive_ms(self) -> float:
        """See Deliveries."""
        return self._alive_ms

    def acknowledge(self, last_tag: int) -> None:
        """See Deliveries."""
        connection, channel = self._connection, self._channel
        if channel is not None:
            with suppress(AMQPError):  # it is closed: what was delivered comes again
                connection.add_callback_threadsafe(partial(_acknowledge, channel, last_tag))

    # --- The thread ---

    def _serve(self) -> None:
        try:
            self._consume()
        except AMQPError as error:
            raise meaning(error, self._what, "queues") from error
        except OSError as error:
            raise Retryable(f"{self._what}: RabbitMQ did not answer: {error}") from error

    def _consume(self) -> None:
        connection: Any = pika.BlockingConnection(parameters(self._url))
        self._connection = connection
        try:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=self._prefetch)
            channel.queue_declare(self._queue, passive=True)
            channel.add_on_cancel_callback(self._cancelled)
            channel.basic_consume(self._queue, self._came, exclusive=True)
            self._channel = channel
            while not self._closed.is_set() and self._error is None:
                before = len(self._messages)
                connection.process_data_events(time_limit=_WAIT_S)
                if len(self._messages) > before:
                    self._wake()
                elif self._looks_for_end:
                    self._look_for_end(connection, channel)
                if self._clock.monotonic_ms() - self._alive_ms >= _ALIVE_MS:
                    channel.queue_declare(self._queue, passive=True)
                    self._alive_ms = self._clock.monotonic_ms()
        finally:
            with suppress(AMQPError):
                connection.close()  # what acknowledge() has asked for is sent before

    def _look_for_end(self, connection: Any, channel: Any) -> None:
        """See whether the queue has nothing to deliver: what it had delivered before it said so has come."""
        before = self._count
        found = channel.queue_declare(self._queue, passive=True)
        connection.process_data_events(time_limit=0)
        if found.method.message_count == 0 and self._count == before:
            self._is_at_end = True
            self._wake()

    def _came(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        message_id = properties.message_id
        if self._id_header is not None:
            found = (properties.headers or {}).get(self._id_header)
            message_id = None if found is None else str(found)
        attributes = {"routing_key": method.routing_key, "exchange": method.exchange}
        self._count += 1
        self._is_at_end = False
        self._messages.append(
            Message(message_id, body, method.delivery_tag, bool(method.redelivered), attributes)
        )

    def _cancelled(self, frame: Any) -> None:
        self._error = Fatal(f"{self._what} was deleted while it was read: declare it again")


def _acknowledge(channel: Any, last_tag: int) -> None:
    with suppress(AMQPError):
        channel.basic_ack(last_tag, multiple=True)
