"""StreamEnumerator: finds streams of RabbitMQ, those of a super stream too, and where to begin in them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pika.exceptions import ChannelClosedByBroker

from onceflow.connectors.rabbitmq.connections import NOT_FOUND, connected
from onceflow.connectors.rabbitmq.stream_looks import first_message, first_there, last_messages
from onceflow.connectors.rabbitmq.stream_position import Found, StreamPosition, truncated
from onceflow.runtime.contracts import Json, SplitState
from onceflow.runtime.errors import Fatal, OptionError


@dataclass(frozen=True, slots=True)
class Streams:
    """What is read, and from where at the job's first start."""

    url: str
    names: Sequence[str]
    super_stream: str | None
    """Its partitions are the streams NAME-0, NAME-1 and so on."""
    start: str | int | dt.datetime
    until: str | Mapping[str, int] | None
    """"latest", or the first offset of each stream that is not read. None: it has no end."""
    skips: bool
    """Whether what retention has deleted is left out."""

    @property
    def is_bounded(self) -> bool:
        return self.until is not None


class StreamEnumerator:
    """A SplitEnumerator and a BoundingEnumerator."""

    def __init__(self, streams: Streams, interval_ms: int) -> None:
        self._streams = streams
        self._interval_ms = interval_ms

    @property
    def discovery_interval_ms(self) -> int | None:
        fixed = self._streams.is_bounded or self._streams.super_stream is None
        return None if fixed else self._interval_ms

    def initial_splits(self) -> Sequence[SplitState]:
        with self.connected() as connection:
            names = self.names(connection)
            needs_last = self._streams.is_bounded or self._streams.start != "earliest"
            last = last_messages(connection, names) if needs_last else {}
            return [self._begun(connection, name, last).state(name) for name in names]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        if self._streams.super_stream is None or self._streams.is_bounded:
            return []
        with self.connected() as connection:
            new = [name for name in self.names(connection) if name not in known]
        return [StreamPosition(0).state(name) for name in new]

    def bounded(self, splits: Sequence[SplitState], finished: Json) -> Sequence[SplitState]:
        """See BoundingEnumerator. Partitions that came since are read from their beginning."""
        if not self._streams.is_bounded:
            return splits
        positions = {split.split_id: StreamPosition.of(split) for split in splits}
        with self.connected() as connection:
            names = [*positions, *(name for name in self.names(connection) if name not in positions)]
            last = last_messages(connection, names)
        found = [(name, positions.get(name) or StreamPosition(0)) for name in names]
        return [
            (
                position
                if position.until_offset is not None
                else replace(position, until_offset=self._until(name, last.get(name)))
            ).state(name)
            for name, position in found
        ]

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        with self.connected() as connection:
            for split in splits:
                position = StreamPosition.of(split)
                if not position.next_offset or position.is_finished:
                    continue
                first = first_there(connection, split.split_id, position)
                if first is not None and not self._streams.skips:
                    raise truncated(split.split_id, position, first)

    def close(self) -> None:
        """Nothing is open."""

    # --- For planners of batches, too ---

    def connected(self) -> Any:
        """A connection for as long as the block takes."""
        name = self._streams.super_stream
        where = f"super stream {name!r}" if name else f"streams {', '.join(map(repr, self._streams.names))}"
        return connected(self._streams.url, where, "super_stream" if name else "streams")

    def names(self, connection: Any) -> list[str]:
        """The streams; of a super stream as many as there are, one after another."""
        super_stream = self._streams.super_stream
        if super_stream is None:
            return list(self._streams.names)
        names: list[str] = []
        while _is_there(connection, name := f"{super_stream}-{len(names)}"):
            names.append(name)
        if not names:
            raise Fatal(
                f"super stream {super_stream!r} has no partition {super_stream}-0: make it with "
                "rabbitmq-streams add_super_stream, or name its streams in streams="
            )
        return names

    # --- Parts ---

    def _begun(self, connection: Any, name: str, last: Mapping[str, Found | None]) -> StreamPosition:
        start, end = self._streams.start, last.get(name)
        end_offset = 0 if end is None else end.offset + 1
        until = self._until(name, end)
        if isinstance(start, int):
            return StreamPosition(start, until)
        if start == "latest" or (end is None and start != "earliest"):
            return StreamPosition(end_offset, until, None if end is None else end.digest)
        first = first_message(connection, name, "first" if start == "earliest" else start)
        return StreamPosition(end_offset if first is None else first.offset, until)

    def _until(self, name: str, end: Found | None) -> int | None:
        """The first offset of a stream that is not read. Raises OptionError for one that is not there yet."""
        end_offset, until = 0 if end is None else end.offset + 1, self._streams.until
        if until is None or isinstance(until, str):
            return None if until is None else end_offset
        if name not in until:
            raise OptionError(f"until= has no offset of stream {name!r}: give one for each stream")
        if until[name] > end_offset:
            raise OptionError(
                f"until= wants stream {name!r} up to offset {until[name]}, but it has messages up to "
                f"{end_offset}: choose another end"
            )
        return until[name]


def _is_there(connection: Any, stream: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(stream, passive=True)
    except ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND and "inaccessible" not in error.reply_text:
            return False
        raise
    channel.close()
    return True
