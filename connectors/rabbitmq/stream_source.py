"""RabbitStreamSource: streams of RabbitMQ, each message once, with the offset in the checkpoint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.formats import Format
from onceflow.connectors.message_fields import named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, ReaderContext, Sink
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.rabbitmq.stream_batches import StreamPlanner
    from onceflow.connectors.rabbitmq.stream_consumer import StreamConsumer
    from onceflow.connectors.rabbitmq.stream_enumerator import StreamEnumerator, Streams
    from onceflow.connectors.rabbitmq.stream_position import StreamPosition
    from onceflow.connectors.rabbitmq.stream_reader import StreamReader

_PREFETCH_MAX = 65_535
_COLUMN_TYPES = {"offset": pa.int64()}


@explained
@dataclass(frozen=True, kw_only=True)
class RabbitStreamSource(MessageSource):
    """Reads streams of RabbitMQ (queues of the type stream), each message once. A Source; connects only when
    the job runs. Needs `pip install 'onceflow[rabbitmq]'`.

    A stream is a split, and the offset of its next message the position; nothing is taken away by reading. A
    stream whose retention has passed the position ends the job, and so does one that was made anew.
    """

    value: Format
    """What the body of a message is: Json(Order)."""
    streams: Sequence[str] = ()
    """The names of streams. For the partitions of a super stream give `super_stream` instead."""
    super_stream: str | None = None
    """A super stream, whose partitions are the streams NAME-0, NAME-1 and so on; new ones are found while the
    job runs."""
    url: str = field(default="amqp://localhost", repr=False)
    """"amqp://user:${RABBIT_PASSWORD}@host:5672/vhost"; `${NAME}` is that variable of the slots'
    environment."""
    start: Literal["earliest", "latest"] | int | dt.datetime = "earliest"
    """At the very first start only: with all that the streams have, with what comes from then on, at an
    offset (of each stream), or with what came from a time on (a datetime with its time zone, to the
    second)."""
    until: Literal["latest"] | Mapping[str, int] | None = None
    """Where the source ends: with what the streams have at the very first start, or before these offsets, by
    stream. None: never."""
    if_truncated: Literal["fail", "skip"] = "fail"
    """What to do if retention has deleted messages that were not read: end the job, or leave them out."""
    prefetch: int = 5_000
    """How many messages of a stream may wait in a reader."""
    offset_column: str | None = None
    stream_column: str | None = None
    """Names of columns with a message's offset and its stream."""
    discovery_interval: str | int = "10 s"
    """How often new partitions of a super stream are looked for."""
    timeout: str | int = "2 min"
    """How long the server may be away before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": a message that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for messages that can't be decoded; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        streams = (self.streams,) if isinstance(self.streams, str) else tuple(self.streams)
        object.__setattr__(self, "streams", streams)
        _check(self)

    # --- Source ---

    @property
    def is_bounded(self) -> bool:
        return self.until is not None

    @property
    def plan_note(self) -> str:
        if self.if_truncated == "fail":
            return "exactly once: offsets are in the checkpoint"
        return "offsets are in the checkpoint; what retention has deleted is left out"

    def open_enumerator(self, job: str, clock: Clock) -> StreamEnumerator:
        from onceflow.connectors.rabbitmq.stream_enumerator import StreamEnumerator

        return StreamEnumerator(self._streams(), duration_ms(self.discovery_interval, "discovery_interval"))

    def open_planner(self, clock: Clock, limit: BatchLimit) -> StreamPlanner:
        """See BatchedSource."""
        from onceflow.connectors.rabbitmq.stream_batches import ServerLooks, StreamPlanner

        return StreamPlanner(ServerLooks(self._streams()), clock, limit)

    def open_reader(self, context: ReaderContext) -> StreamReader:
        from onceflow.connectors.rabbitmq.stream_consumer import StreamConsumer
        from onceflow.connectors.rabbitmq.stream_reader import StreamReader

        def connect(stream: str, position: StreamPosition) -> StreamConsumer:
            skips = self.if_truncated == "skip"
            return StreamConsumer(self.url, stream, position, self.prefetch, skips, context)

        give_up_ms = duration_ms(self.timeout, "timeout")
        return StreamReader(connect, self.rows(), self.read_beside(), give_up_ms, context)

    def ended(self, until: Json) -> RabbitStreamSource:
        """See EndableSource."""
        if until != "latest" and not isinstance(until, Mapping):
            raise OptionError(
                "a stream of RabbitMQ has times of its chunks only, and no exact end by time: write latest, "
                "or the folder of a job or savepoint that has read it"
            )
        return replace(self, until="latest" if until == "latest" else until)

    # --- Parts ---

    def _streams(self) -> Streams:
        from onceflow.connectors.rabbitmq.stream_enumerator import Streams

        skips = self.if_truncated == "skip"
        return Streams(self.url, self.streams, self.super_stream, self.start, self.until, skips)

    def beside(self) -> dict[str, pa.Field]:
        """See MessageSource."""
        return named_fields(_COLUMN_TYPES, offset=self.offset_column, stream=self.stream_column)


def _check(source: RabbitStreamSource) -> None:
    source.check_message_source("rabbitmq", "pika", ("discovery_interval", "timeout"))
    source.check_names("streams", "streams", is_optional=True)
    if bool(source.streams) == bool(source.super_stream):
        raise OptionError("RabbitStreamSource: give either streams=, or the name of a super_stream=")
    if not isinstance(source.url, str) or not source.url.startswith(("amqp://", "amqps://")):
        raise OptionError("RabbitStreamSource: url: give an address that begins with amqp:// or amqps://")
    _check_bounds(source)
    if not (isinstance(source.prefetch, int) and 0 < source.prefetch <= _PREFETCH_MAX):
        raise OptionError(
            f"RabbitStreamSource: prefetch={source.prefetch!r}: give a number from 1 to {_PREFETCH_MAX}"
        )
    if source.if_truncated not in ("fail", "skip"):
        raise OptionError(f'if_truncated={source.if_truncated!r}: write "fail" or "skip"')


def _check_bounds(source: RabbitStreamSource) -> None:
    start = source.start
    if isinstance(start, dt.datetime):
        if start.tzinfo is None:
            raise OptionError(f"start={start.isoformat()} has no time zone: give it one, tzinfo=dt.UTC")
    elif start not in ("earliest", "latest") and (type(start) is not int or start < 0):
        raise OptionError(
            f'start={start!r}: write "earliest" or "latest", or give an offset, or a datetime with its time '
            "zone"
        )
    until = source.until
    offsets = until.values() if isinstance(until, Mapping) else [-1]
    is_offsets = all(type(each) is int and each >= 0 for each in offsets)
    if until not in (None, "latest") and not is_offsets:
        raise OptionError(
            f'until={until!r}: write "latest", offsets such as {{"orders": 17}}, or leave it out'
        )
    if start == "latest" and source.until == "latest":
        raise OptionError(
            'RabbitStreamSource: start="latest" until="latest" reads nothing: leave one of them out'
        )
