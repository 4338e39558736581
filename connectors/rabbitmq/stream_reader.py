"""StreamReader: the messages of streams of RabbitMQ as rows, each stream from exactly where it was left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from onceflow.connectors.message_rows import Letter, MessageRows
from onceflow.connectors.rabbitmq.stream_consumer import StreamConsumer, StreamMessage
from onceflow.connectors.rabbitmq.stream_position import StreamPosition, digest
from onceflow.connectors.reconnects import Reconnects
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import Retryable


class _Stream:
    """A split: how far it was read, and its connection."""

    def __init__(self, split: SplitState, reconnects: Reconnects) -> None:
        self.name = split.split_id
        self.position = StreamPosition.of(split)
        self.reconnects = reconnects
        self.consumer: StreamConsumer | None = None
        self.is_finished = False
        self.is_told_quiet = False


class StreamReader:
    """A SourceReader. Each stream has a connection and a thread of its own."""

    def __init__(
        self,
        connect: Callable[[str, StreamPosition], StreamConsumer],
        rows: MessageRows,
        columns: Sequence[str],
        give_up_ms: int,
        context: ReaderContext,
    ) -> None:
        """`columns`: what is known of a message beside its body, "offset" or "stream"."""
        self._connect = connect
        self._rows = rows
        self._columns = columns
        self._give_up_ms = give_up_ms
        self._context = context
        self._streams: dict[str, _Stream] = {}
        self._turn = 0

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        context = self._context
        for split in splits:
            reconnects = Reconnects(context.clock, context.on_wait, self._give_up_ms)
            self._streams[split.split_id] = _Stream(split, reconnects)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """The next messages of one stream; there is no waiting."""
        open_streams = [stream for stream in self._streams.values() if not stream.is_finished]
        for _ in open_streams:
            self._turn += 1
            stream = open_streams[self._turn % len(open_streams)]
            try:
                fetch = self._poll(stream, records_max)
            except Retryable as error:
                _let_go(stream)
                stream.reconnects.failed(error)
                continue
            if fetch is not None:
                return fetch
        return None

    def snapshot(self) -> Sequence[SplitState]:
        return [stream.position.state(stream.name) for stream in self._streams.values()]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody asks for them."""

    def close(self) -> None:
        for stream in self._streams.values():
            _let_go(stream)

    # --- Parts ---

    def _poll(self, stream: _Stream, records_max: int) -> Fetch | None:
        if stream.position.is_finished:
            stream.is_finished = True
            _let_go(stream)
            return self._fetch(stream, [])
        if stream.consumer is None:
            if not stream.reconnects.is_time:
                return None
            stream.consumer = self._connect(stream.name, stream.position)
        messages = stream.consumer.take(records_max)
        if messages:
            stream.reconnects.worked()
            stream.is_told_quiet = False
            return self._fetch(stream, self._moved(stream, messages))
        if stream.consumer.is_quiet and not stream.is_told_quiet:
            stream.reconnects.worked()
            stream.is_told_quiet = True
            return replace(self._fetch(stream, []), at_end=frozenset({stream.name}))
        return None

    def _moved(self, stream: _Stream, messages: Sequence[StreamMessage]) -> Sequence[StreamMessage]:
        """Move the position behind the messages, and give those that are before the end."""
        until, last = stream.position.until_offset, messages[-1]
        stream.position = replace(stream.position, next_offset=last.offset + 1, digest=digest(last.body))
        if until is not None and last.offset >= until:
            messages = [message for message in messages if message.offset < until]
        if stream.position.is_finished:
            stream.is_finished = True
            _let_go(stream)
        return messages

    def _fetch(self, stream: _Stream, messages: Sequence[StreamMessage]) -> Fetch:
        name = stream.name

        def letter(number: int) -> Letter:
            offset = messages[number].offset
            return Letter(f"message at offset {offset} of stream {name!r}", name, 0, offset, None)

        made = self._rows.of(
            [message.body for message in messages],
            lambda kept: self._beside(name, [messages[number] for number in kept]),
            letter,
        )
        offsets = np.array([message.offset for message in messages], np.int64)
        return Fetch(
            made.batch,
            np.zeros(made.batch.num_rows, np.uint16),
            (name,),
            offsets[made.kept] if self._context.with_origin else None,
            dead_letters=made.dead_letters,
            kind=made.kinds,
            finished=frozenset({name}) if stream.is_finished else frozenset(),
        )

    def _beside(self, name: str, messages: Sequence[StreamMessage]) -> list[pa.Array]:
        values: dict[str, pa.Array] = {
            "offset": pa.array([message.offset for message in messages], pa.int64()),
            "stream": pa.array([name] * len(messages), pa.string()),
        }
        return [values[what] for what in self._columns]


def _let_go(stream: _Stream) -> None:
    consumer, stream.consumer = stream.consumer, None
    if consumer is not None:
        consumer.close()
