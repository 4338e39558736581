"""StreamPlanner: streams of RabbitMQ in batches, each from an offset of each stream up to another.

A stream says its last message, so the end of a batch is known before it is read, and nothing is taken away by
reading: whoever reads the batch again finds the same messages. A place has the digest of the message before
it, so a stream that was made anew is known as a job knows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from onceflow.connectors.look_pace import LookPace
from onceflow.connectors.rabbitmq.connections import connected
from onceflow.connectors.rabbitmq.stream_enumerator import StreamEnumerator, Streams
from onceflow.connectors.rabbitmq.stream_looks import first_message, first_there, last_messages
from onceflow.connectors.rabbitmq.stream_position import Found, StreamPosition
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, SplitState
from onceflow.runtime.errors import OptionError

_LOOK_MS = 1_000
_BEGINNING = StreamPosition(0)
"""Where a partition begins that was added to a super stream."""


class StreamLooks(Protocol):
    """What a planner asks a server."""

    def begun(self) -> Mapping[str, StreamPosition]:
        """Where to begin in each stream that is there."""
        ...

    def ends(self, is_sure: bool) -> Mapping[str, Found | None]:
        """The last message of each stream; None: it has none. Not `is_sure`: a stream in which the first
        messages came some seconds ago may be taken for empty, which need not be waited for."""
        ...

    def digest_at(self, stream: str, offset: int) -> str | None:
        """The digest of a message; None: the offset is none of a message."""
        ...

    def check(self, stream: str, position: StreamPosition) -> None:
        """Raises DataLossError if this is not the stream that was read up to this position."""
        ...


class StreamPlanner:
    """A BatchPlanner. A place: the next offset of each stream, and the digest of the message before it."""

    def __init__(self, looks: StreamLooks, clock: Clock, limit: BatchLimit) -> None:
        self._looks = looks
        self._records = limit.records
        self._pace = LookPace(clock, _LOOK_MS)
        self._held: Mapping[str, Found | None] | None = None

    def first(self) -> Json:
        return {"streams": None}

    def next(self, place: Json) -> Json:
        if place["streams"] is None:
            return _place(self._looks.begun())
        if self._held is None and not self._pace.is_due():
            return place
        begins = _positions(place)
        ends = self._looks.ends(is_sure=False) if self._held is None else self._held
        behind = {}
        for stream, last in ends.items():
            begin = begins.get(stream, _BEGINNING)
            if last is not None and last.offset >= begin.next_offset:
                behind[stream] = last
            elif last is not None and last.offset + 1 < begin.next_offset and self._held is None:
                self._looks.check(stream, begin)
        if not behind:
            return place
        self._pace.found_some()
        share = None if self._records is None else max(1, self._records // len(behind))
        cuts = {each: self._cut(each, begins.get(each, _BEGINNING), behind[each], share) for each in behind}
        return _place({**begins, **cuts})

    def hold(self) -> None:
        self._held = self._looks.ends(is_sure=True)

    def tasks(self, begin: Json, end: Json) -> Sequence[Sequence[SplitState]]:
        if begin["streams"] is None:
            return []
        begins = _positions(begin)
        found = []
        for stream, until in _positions(end).items():
            position = begins.get(stream, _BEGINNING)
            if until.next_offset > position.next_offset:
                found.append([replace(position, until_offset=until.next_offset).state(stream)])
        return found

    def done(self, place: Json) -> None:
        """A stream keeps messages for as long as it keeps them."""

    def close(self) -> None:
        """Nothing is open."""

    # --- Parts ---

    def _cut(self, stream: str, begin: StreamPosition, last: Found, share: int | None) -> StreamPosition:
        end = last.offset + 1
        if share is None or begin.next_offset + share >= end:
            return StreamPosition(end, digest=last.digest)
        end = begin.next_offset + share
        return StreamPosition(end, digest=self._looks.digest_at(stream, end - 1))


def _place(positions: Mapping[str, StreamPosition]) -> Json:
    return {"streams": {name: [each.next_offset, each.digest] for name, each in positions.items()}}


def _positions(place: Json) -> dict[str, StreamPosition]:
    return {
        name: StreamPosition(offset, digest=digest) for name, (offset, digest) in place["streams"].items()
    }


class ServerLooks:
    """StreamLooks of a server, by a connection for each question."""

    def __init__(self, streams: Streams) -> None:
        """Raises OptionError for options that make no sense in batches."""
        if streams.is_bounded:
            raise OptionError("streams that are read in batches have no until: leave it out")
        if streams.skips:
            raise OptionError(
                'if_truncated="skip" makes no sense in batches: a batch that is read again would have other '
                "messages; leave it out"
            )
        self._streams = streams
        self._enumerator = StreamEnumerator(streams, interval_ms=0)

    def begun(self) -> Mapping[str, StreamPosition]:
        return {each.split_id: StreamPosition.of(each) for each in self._enumerator.initial_splits()}

    def ends(self, is_sure: bool) -> Mapping[str, Found | None]:
        with self._enumerator.connected() as connection:
            names = asked = self._enumerator.names(connection)
            if not is_sure:
                counting = connection.channel()
                asked = [
                    name for name in names if counting.queue_declare(name, passive=True).method.message_count
                ]
            return {**dict.fromkeys(names), **last_messages(connection, asked)}

    def digest_at(self, stream: str, offset: int) -> str | None:
        with self._of(stream) as connection:
            found = first_message(connection, stream, offset)
        return found.digest if found is not None and found.offset == offset else None

    def check(self, stream: str, position: StreamPosition) -> None:
        with self._of(stream) as connection:
            first_there(connection, stream, position)

    def _of(self, stream: str) -> Any:
        return connected(self._streams.url, f"stream {stream!r}", "streams")
