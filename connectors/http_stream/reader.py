"""HttpStreamReader: the events of streams as rows, each from exactly behind its last event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from onceflow.connectors.http_stream.connection import Pump, StreamRequest
from onceflow.connectors.http_stream.framing import Event
from onceflow.connectors.message_rows import Letter, MessageRows
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import Fatal

_SHOWN_BYTES = 100


@dataclass(frozen=True, slots=True)
class Rows:
    """How events become rows."""

    messages: MessageRows
    columns: Sequence[str]
    """What is known of an event beside its data and has a column: "id", "event", "url"."""
    only_events: frozenset[str] | None
    """Names of events that are read; None: all."""
    has_ids: bool
    """Whether an event without an id is refused: it could not be found again."""


@dataclass(slots=True)
class _Stream:
    split_id: str
    url: str
    last_id: str | None
    count: int
    """How many events of it have been read so far, since the job's first start."""
    pump: Pump = field(repr=False)
    is_finished: bool = False

    def state(self) -> SplitState:
        return SplitState(self.split_id, {"last_event_id": self.last_id, "count": self.count})


class HttpStreamReader:
    """A SourceReader. Each stream has a connection and a thread of its own."""

    def __init__(self, requests: Mapping[str, StreamRequest], rows: Rows, context: ReaderContext) -> None:
        """`requests`: of each split."""
        self._requests = requests
        self._rows = rows
        self._context = context
        self._streams: dict[str, _Stream] = {}
        self._turn = 0

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            request = self._requests[split.split_id]
            last_id, context = split.position["last_event_id"], self._context
            pump = Pump(request, last_id, context.clock, context.on_wait, context.wake)
            count = split.position["count"]
            self._streams[split.split_id] = _Stream(split.split_id, request.url, last_id, count, pump)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """The next events of one stream; there is no waiting."""
        streams = [stream for stream in self._streams.values() if not stream.is_finished]
        for _ in streams:
            self._turn += 1
            stream = streams[self._turn % len(streams)]
            if events := stream.pump.take(records_max):
                return self._fetch(stream, events)
            if stream.pump.has_ended:
                stream.is_finished = True
                return self._fetch(stream, [])
        return None

    def snapshot(self) -> Sequence[SplitState]:
        return [stream.state() for stream in self._streams.values()]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody asks for them."""

    def close(self) -> None:
        for stream in self._streams.values():
            stream.pump.close()

    def _fetch(self, stream: _Stream, events: list[Event]) -> Fetch:
        first, last_id = stream.count, stream.last_id
        self._check_ids(stream, events)
        stream.count += len(events)
        stream.last_id = next((e.id for e in reversed(events) if e.id is not None), last_id)
        numbers = np.arange(first, stream.count, dtype=np.int64)
        if (only := self._rows.only_events) is not None:
            is_wanted = np.array([event.name in only for event in events], bool)
            numbers = numbers[is_wanted]
            events = [event for event in events if event.name in only]

        def letter(number: int) -> Letter:
            event = events[number]
            key = None if event.id is None else event.id.encode()
            return Letter(f"event {event.id!r} of {stream.url}", stream.url, 0, int(numbers[number]), key)

        made = self._rows.messages.of(
            [event.data for event in events],
            lambda kept: self._beside(stream, [events[number] for number in kept]),
            letter,
        )
        batch = made.batch
        return Fetch(
            batch,
            np.zeros(batch.num_rows, np.uint16),
            (stream.split_id,),
            numbers[made.kept] if self._context.with_origin else None,
            dead_letters=made.dead_letters,
            kind=made.kinds,
            at_end=frozenset() if events else frozenset({stream.split_id}),
            finished=frozenset({stream.split_id}) if stream.is_finished else frozenset(),
        )

    def _check_ids(self, stream: _Stream, events: Sequence[Event]) -> None:
        if self._rows.has_ids and (without := next((e for e in events if e.id is None), None)):
            raise Fatal(
                f"{stream.url}: an event has no id, so it could not be found again after a failure; it "
                f'begins with {without.data[:_SHOWN_BYTES]!r}. Say without_ids="at-most-once" if such events '
                "may be lost then"
            )

    def _beside(self, stream: _Stream, events: Sequence[Event]) -> list[pa.Array]:
        values: dict[str, list[str | None]] = {
            "id": [event.id for event in events],
            "event": [event.name for event in events],
            "url": [stream.url for _ in events],
        }
        return [pa.array(values[what], pa.string()) for what in self._rows.columns]
