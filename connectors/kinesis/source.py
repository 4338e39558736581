"""KinesisSource: a stream of Amazon Kinesis, each record once, whatever is split and merged meanwhile."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.formats import Format
from onceflow.connectors.kinesis.columns import COLUMN_TYPES
from onceflow.connectors.kinesis.finished_shards import FinishedShards
from onceflow.connectors.kinesis.position import ShardPosition
from onceflow.connectors.message_fields import named_fields
from onceflow.connectors.message_source import MessageSource
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, ReaderContext, Sink, SplitState
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onceflow.connectors.kinesis.batches import KinesisPlanner
    from onceflow.connectors.kinesis.client import StreamPlace
    from onceflow.connectors.kinesis.enumerator import Bounds, KinesisEnumerator
    from onceflow.connectors.kinesis.reader import KinesisReader

_TIME = "timestamp:"


@explained
@dataclass(frozen=True, kw_only=True)
class KinesisSource(MessageSource):
    """Reads a stream of Amazon Kinesis Data Streams, each record once. A Source; connects only when the job
    runs. Needs `pip install 'onceflow[kinesis]'`.

    A shard is a split, and the sequence number of its last record the position. A shard that came of a split
    or a merge is read when its parents have been read to their end, also if the job stops in between; so
    records of a key come in their order. What was trimmed before it was read ends the job. Records that a
    producer library (KPL) has packed into one are unpacked.
    """

    stream: str
    """Its name, or its ARN."""
    value: Format
    """What the data of a record is: Json(Trade)."""
    start: Literal["earliest", "latest"] | dt.datetime = "earliest"
    """At the very first start only: with all that the stream has, with what arrives from then on, or with
    what arrived from a time on (a datetime with its time zone)."""
    until: Literal["latest"] | dt.datetime | None = None
    """Where the source ends: with what has arrived by the very first start, or by a time. None: never."""
    region: str | None = None
    """"eu-central-1". None: as the environment says."""
    endpoint_url: str | None = None
    """Another address than Amazon's own."""
    partition_key_column: str | None = None
    arrival_time_column: str | None = None
    shard_column: str | None = None
    sequence_number_column: str | None = None
    """Names of columns with a record's partition key, the time of its arrival, its shard and its sequence
    number (with a dot and the number of the part, if it was packed by a producer)."""
    fetch_interval: str | int = "200 ms"
    """How far apart requests for one shard are: Kinesis allows five a second, for all readers together."""
    discovery_interval: str | int = "10 s"
    """How often new shards are looked for."""
    timeout: str | int = "2 min"
    """How long Kinesis may be away, or want fewer requests, before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": a record that can't be decoded ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for records that can't be decoded; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        _check(self)

    # --- Source ---

    @property
    def is_bounded(self) -> bool:
        return self.until is not None

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    @property
    def plan_note(self) -> str:
        return "exactly once: sequence numbers are in the checkpoint; children come after their parents' end"

    def open_enumerator(self, job: str, clock: Clock) -> KinesisEnumerator:
        from onceflow.connectors.kinesis.enumerator import KinesisEnumerator

        interval_ms = duration_ms(self.discovery_interval, "discovery_interval")
        return KinesisEnumerator(self._place(), self._bounds(), interval_ms)

    def open_reader(self, context: ReaderContext) -> KinesisReader:
        from onceflow.connectors.kinesis.reader import KinesisReader

        rows, columns = self.rows(), self.read_beside()
        interval_ms = duration_ms(self.fetch_interval, "fetch_interval")
        give_up_ms = duration_ms(self.timeout, "timeout")
        return KinesisReader(self._place(), rows, columns, interval_ms, give_up_ms, context)

    # --- What it may do beyond that ---

    def ended(self, until: Json) -> KinesisSource:
        """See EndableSource: a time is that of arrival."""
        if until == "latest":
            return replace(self, until="latest")
        if isinstance(until, str) and until.startswith(_TIME):
            return replace(self, until=_time_before(until.removeprefix(_TIME)))
        raise OptionError(
            "shards are not compared by what another job has read of them: write latest, or a time such as "
            "2026-01-31T00:00:00Z"
        )

    def add_finished(self, finished: Json, splits: Sequence[SplitState]) -> Json:
        """See PruningSource."""
        return FinishedShards(finished).with_shards(map(ShardPosition.of, splits))

    def open_planner(self, clock: Clock, limit: BatchLimit) -> KinesisPlanner:
        """See BatchedSource."""
        from onceflow.connectors.kinesis.batches import KinesisPlanner

        return KinesisPlanner(self._place(), self._bounds(), clock, limit)

    # --- Parts ---

    def beside(self) -> dict[str, pa.Field]:
        """See MessageSource."""
        return named_fields(
            COLUMN_TYPES,
            partition_key=self.partition_key_column,
            arrival_time=self.arrival_time_column,
            shard=self.shard_column,
            sequence_number=self.sequence_number_column,
        )

    def _place(self) -> StreamPlace:
        from onceflow.connectors.kinesis.client import StreamPlace

        return StreamPlace(self.stream, self.region, self.endpoint_url)

    def _bounds(self) -> Bounds:
        from onceflow.connectors.kinesis.enumerator import Bounds

        return Bounds(_ms(self.start), self.start == "latest", _ms(self.until), self.until == "latest")


def _time_before(text: str) -> dt.datetime:
    """The last ms before this time, which is ISO 8601 or ms: until= is the last one that is read."""
    at = dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC) if text.isdecimal() else None
    try:
        return (at or dt.datetime.fromisoformat(text)) - dt.timedelta(milliseconds=1)
    except ValueError as error:
        raise OptionError(f"{text!r} is no time ({error}): write one such as 2026-01-31T00:00:00Z") from error


def _ms(time: object) -> int | None:
    return int(time.timestamp() * 1000) if isinstance(time, dt.datetime) else None


def _check(source: KinesisSource) -> None:
    durations = ("fetch_interval", "discovery_interval", "timeout")
    source.check_message_source("kinesis", "boto3", durations)
    if not isinstance(source.stream, str) or not source.stream:
        raise OptionError(f"KinesisSource: stream={source.stream!r}: give the name of a stream, or its ARN")
    _check_time("start", source.start, ("earliest", "latest"))
    if source.until is not None:
        _check_time("until", source.until, ("latest",))
    first, last = source.start, source.until
    if isinstance(first, dt.datetime) and isinstance(last, dt.datetime) and last < first:
        raise OptionError(f"KinesisSource: until={last.isoformat()} is before start={first.isoformat()}")
    if source.start == "latest" and source.until == "latest":
        raise OptionError('KinesisSource: start="latest" until="latest" reads nothing: leave one of them out')


def _check_time(option: str, given: object, words: tuple[str, ...]) -> None:
    if isinstance(given, dt.datetime):
        if given.tzinfo is None:
            raise OptionError(f"{option}={given.isoformat()} has no time zone: give it one, tzinfo=dt.UTC")
        return
    if given not in words:
        known = " or ".join(f'"{word}"' for word in words)
        raise OptionError(f"{option}={given!r}: write {known}, or give a datetime with its time zone")
