"""What a stream of RabbitMQ has: its first and its last message, and whether a position can be read on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from onceflow.connectors.rabbitmq.stream_position import Found, StreamPosition, digest
from onceflow.runtime.errors import Retryable

OFFSET = "x-stream-offset"
"""The argument that says where a consumer begins, and the header that says which message it is."""
_EMPTY_S = 5.0
"""A stream that brings nothing for so long, and whose count is 0, is empty: the server counts each few
seconds, and says of no consumer that it is at the end."""
_ANSWER_S = 60.0
_WAIT_S = 0.05
_CREDIT = 65_535


def offset_of(properties: Any) -> int:
    """The offset of a message."""
    return int(properties.headers[OFFSET])


def first_message(connection: Any, stream: str, start: object) -> Found | None:
    """The first message from there on: an offset, "first", or a datetime. None: there is none."""
    return _look(connection, {stream: start}, 1)[stream]


def last_messages(connection: Any, streams: list[str]) -> Mapping[str, Found | None]:
    """The last message of each stream; None: it has none."""
    return _look(connection, dict.fromkeys(streams, "last"), _CREDIT)


def first_there(connection: Any, stream: str, position: StreamPosition) -> int | None:
    """See StreamPosition.check."""
    found = first_message(connection, stream, position.before)
    is_sure = found is not None and found.offset <= position.next_offset
    first = None if is_sure else first_message(connection, stream, "first")
    last = last_messages(connection, [stream])[stream] if found is None else None
    return position.check(stream, found, first, last)


def _look(connection: Any, starts: Mapping[str, object], credit: int) -> dict[str, Found | None]:
    """The last message that comes of each stream, if that many may come."""
    bodies: dict[str, tuple[Any, bytes]] = {}
    channels: dict[str, Any] = {}
    for stream, start in starts.items():
        channel = channels[stream] = connection.channel()
        channel.basic_qos(prefetch_count=credit)
        channel.queue_declare(stream, passive=True)

        def came(_: Any, method: Any, properties: Any, body: bytes, stream: str = stream) -> None:
            if credit > 1 or stream not in bodies:
                bodies[stream] = properties, body

        channel.basic_consume(stream, came, arguments={OFFSET: start})
    began = time.monotonic()
    while lacking := [stream for stream in starts if stream not in bodies]:
        connection.process_data_events(time_limit=_WAIT_S)
        waited = time.monotonic() - began
        counts = [channels[each].queue_declare(each, passive=True).method.message_count for each in lacking]
        is_behind_end = all(starts[each] not in ("first", "last") for each in lacking)
        if waited >= _EMPTY_S and (is_behind_end or not any(counts)):
            break
        if waited >= _ANSWER_S:
            raise Retryable(f"stream {lacking[0]!r} brought no message within {_ANSWER_S:.0f} s")
    for stream, channel in channels.items():
        channel.queue_declare(stream, passive=True)  # what was sent before its answer has come
        connection.process_data_events(time_limit=0)
        channel.close()
    return {
        stream: Found(offset_of(bodies[stream][0]), digest(bodies[stream][1])) if stream in bodies else None
        for stream in starts
    }
