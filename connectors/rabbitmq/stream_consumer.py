"""StreamConsumer: one stream of RabbitMQ from an offset on, consumed on a thread of its own."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pika.exceptions import AMQPError

from onceflow.connectors.rabbitmq.connections import connected
from onceflow.connectors.rabbitmq.stream_looks import OFFSET, first_there, offset_of
from onceflow.connectors.rabbitmq.stream_position import StreamPosition, truncated
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable

_WAIT_S = 0.2
_QUIET_MS = 1_000
"""After so long without a message the server is asked whether it is there."""


class StreamMessage(NamedTuple):
    """A message of a stream."""

    offset: int
    body: bytes
    tag: int


class StreamConsumer:
    """A consumer of one stream, from its position on. `prefetch`: how many messages may wait here. What a
    stream has is not taken away by reading: acknowledging only lets more come."""

    def __init__(
        self,
        url: str,
        stream: str,
        position: StreamPosition,
        prefetch: int,
        skips: bool,
        context: ReaderContext,
    ) -> None:
        """`skips`: whether what retention has deleted is left out."""
        self._url, self._stream, self._position, self._prefetch = url, stream, position, prefetch
        self._skips = skips
        self._clock, self._wake = context.clock, context.wake
        self._messages: collections.deque[StreamMessage] = collections.deque()
        self._incoming: list[StreamMessage] = []
        """What has come, and was not looked at."""
        self._expected = position.next_offset
        self._taken_tag = self._told_tag = 0
        self._is_quiet = False
        self._error: OnceflowError | None = None
        self._closed = threading.Event()
        self._connection: Any = None
        self._channel: Any = None
        self._thread = threading.Thread(target=self._run, name="onceflow-rabbitmq-stream", daemon=True)
        self._thread.start()

    def take(self, count: int) -> Sequence[StreamMessage]:
        """The next messages, `count` at most, without waiting. Raises what ended the connection once all
        before it are taken: Retryable (then a new connection is made), Fatal."""
        messages = self._messages
        taken = [messages.popleft() for _ in range(min(count, len(messages)))]
        if taken:
            self._taken_tag = taken[-1].tag
            if self._taken_tag - self._told_tag >= self._prefetch // 4:
                self._told_tag = self._taken_tag
                with suppress(AMQPError):  # it is closed: a new one reads on
                    self._connection.add_callback_threadsafe(
                        partial(_let_more_come, self._channel, self._told_tag)
                    )
        elif self._error is not None:
            raise self._error
        return taken

    @property
    def is_quiet(self) -> bool:
        """Whether all was taken, and the server has answered since, without bringing more."""
        return self._is_quiet and not self._messages

    def close(self) -> None:
        """End the connection."""
        self._closed.set()
        self._thread.join(5)

    # --- The thread ---

    def _run(self) -> None:
        try:
            with connected(self._url, f"stream {self._stream!r}", "streams") as connection:
                self._consume(connection)
        except OnceflowError as error:
            self._error = error
        except Exception as error:  # a bug: told where it is polled, and not on a thread that nobody sees
            self._error = Fatal(f"stream {self._stream!r}: {type(error).__name__}: {error}")
        self._wake()

    def _consume(self, connection: Any) -> None:
        if self._expected:
            self._check(connection)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.queue_declare(self._stream, passive=True)
        channel.add_on_cancel_callback(self._cancelled)
        self._connection, self._channel = connection, channel
        channel.basic_consume(self._stream, self._came, arguments={OFFSET: self._expected})
        came_ms = self._clock.monotonic_ms()
        while not self._closed.is_set() and self._error is None:
            connection.process_data_events(time_limit=_WAIT_S)
            now_ms = self._clock.monotonic_ms()
            if self._incoming:
                came_ms = now_ms
                self._hand_on(connection)
            elif now_ms - came_ms >= _QUIET_MS:
                channel.queue_declare(self._stream, passive=True)
                connection.process_data_events(time_limit=0)
                came_ms = now_ms
                if not self._incoming and not self._is_quiet:
                    self._is_quiet = True
                    self._wake()

    def _hand_on(self, connection: Any) -> None:
        """Give what has come to the reader; before a hole, see whether it was messages."""
        incoming, self._incoming = self._incoming, []
        self._is_quiet = False
        for message in incoming:
            if message.offset < self._expected:
                continue
            if message.offset > self._expected:
                self._check(connection)
            self._expected = message.offset + 1
            self._messages.append(message)
        self._wake()

    def _check(self, connection: Any) -> None:
        """Raises DataLossError if messages from the expected one on are gone, unless they may be."""
        is_first = self._expected == self._position.next_offset
        position = self._position if is_first else StreamPosition(self._expected)
        first = first_there(connection, self._stream, position)
        if first is None:
            return
        if not self._skips:
            raise truncated(self._stream, position, first)
        self._expected = first

    def _came(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._incoming.append(StreamMessage(offset_of(properties), body, method.delivery_tag))

    def _cancelled(self, frame: Any) -> None:
        self._error = Retryable(f"stream {self._stream!r}: the server has ended the consumer")


def _let_more_come(channel: Any, last_tag: int) -> None:
    with suppress(AMQPError):
        channel.basic_ack(last_tag, multiple=True)
