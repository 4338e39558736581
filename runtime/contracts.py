"""What connectors must provide: Source, SplitEnumerator, SourceReader, Sink, SinkWriter.

This is all that the author of a connector reads. The engine calls these objects and nothing else;
`runtime/testing/conformance.py` checks an implementation against every sentence here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.records import Int64s, Records
from onceflow.runtime.types import duration_ms

Json = Any
"""A value that json.dumps takes: None, bool, int, float, str, list, dict with str keys."""

DEAD_LETTER_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64()),  # the record's own, ms
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),  # "key" or "value": which could not be decoded
    ]
)


# --- Sources ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitState:
    """A part of a source and where to go on reading it; this is the split's whole state.

    `split_id` is unique within the source and stable for ever (Kafka: "topic-3"). `position` is
    opaque to the engine and JSON: it is written to the checkpoint's manifest as it is (Kafka: topic,
    topic_id, partition, next_offset, stop_offset).
    """

    split_id: str
    position: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Fetch:
    """What one poll brought: rows of any of the reader's splits, in order within each split.

    `records` has the source's schema. `row_split` (uint16, one per row) indexes `splits`.
    `offset` (int64, one per row) is there if the reader was opened with `with_origin`.
    `timestamp_ms` (int64, one per row) is the record's own timestamp (Kafka: CreateTime or
    LogAppendTime), there if the source's `needs_timestamp` asks for it.
    `dead_letters` has DEAD_LETTER_SCHEMA. `at_end`: splits with nothing more to read right now (the
    idle clock runs only for these; a split that is slow to fetch is never idle). `finished`: bounded
    splits read up to their bound; they will not be seen again.
    """

    records: pa.RecordBatch
    row_split: npt.NDArray[np.uint16]
    splits: tuple[str, ...]
    offset: Int64s | None = None
    timestamp_ms: Int64s | None = None
    dead_letters: pa.RecordBatch | None = None
    at_end: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReaderContext:
    """What a reader gets when it is opened in a slot."""

    job: str
    uid: str
    subtask: int
    attempt: int
    clock: Clock
    with_origin: bool = False
    with_timestamp: bool = False
    on_wait: Callable[[str], None] = lambda reason: None
    """Tells the live line what the reader waits for ("broker localhost:9092 is away since 3 s")."""


class SourceReader(Protocol):
    """Reads the splits of one subtask. One thread calls it."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        """Start reading these as well, each exactly from its position. At start and while running."""
        ...

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """The next rows; None if there are none within timeout_ms (0: don't wait).

        Of at most records_max records (1 or more, see BatchSize), and bounded in bytes. Raises Retryable
        for a passing fault after which poll may be called again, DataLossError naming split and offsets
        where the position is gone, BadRecordError.
        """
        ...

    def snapshot(self) -> Sequence[SplitState]:
        """Where to go on, for every split ever added: after exactly the rows that poll returned.

        Cheap: called at each barrier between two polls. Finished splits are included.
        """
        ...

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Show progress to lag monitors once a checkpoint is complete. Best effort, never read back."""
        ...

    def close(self) -> None: ...


class SplitEnumerator(Protocol):
    """Finds splits. Lives in the driver; its calls may block for seconds; one thread calls it."""

    def initial_splits(self) -> Sequence[SplitState]:
        """At the very first start of the job, at the configured start; made durable at once."""
        ...

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        """While running: splits that are not in `known`, from their beginning. [] for a bounded source."""
        ...

    @property
    def discovery_interval_ms(self) -> int | None:
        """How often `discover` is called while the job runs; None: never."""
        ...

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        """Before a restore: raise DataLossError naming split and offsets where reading can't go on
        exactly (offset deleted by retention, topic deleted or made anew)."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class SkippingEnumerator(Protocol):
    """An enumerator that can leave out what is there: what at-most-once restarts with."""

    def skip_to_end(self, splits: Sequence[SplitState]) -> Sequence[SplitState]:
        """The same splits, positioned after the last record that is there now."""
        ...


@runtime_checkable
class WarningEnumerator(Protocol):
    """An enumerator that can tell what of its options does not apply to splits from a checkpoint."""

    def warnings(self, splits: Sequence[SplitState]) -> Sequence[str]:
        """In sentences, for people. Asks nobody."""
        ...


class Source(Protocol):
    """The description of what is read. Immutable, picklable, opens nothing when it is made."""

    @property
    def schema(self) -> pa.Schema:
        """Columns of the rows; no dictionary types."""
        ...

    @property
    def record_type(self) -> type | None:
        """The user's dataclass or NamedTuple for per-record functions, if there is one."""
        ...

    @property
    def is_bounded(self) -> bool: ...

    def open_enumerator(self, job: str, clock: Clock) -> SplitEnumerator: ...

    def open_reader(self, context: ReaderContext) -> SourceReader: ...


@runtime_checkable
class ProjectableSource(Protocol):
    """A source that can leave out columns nobody reads."""

    def project(self, columns: frozenset[str]) -> Source:
        """The same source with only these columns in its schema, in the same order."""
        ...


@runtime_checkable
class DeadLetterSource(Protocol):
    """A source that can send records it can't decode to an output of their own."""

    def dead_letter_sink(self) -> Sink | None:
        """Where dead letters (DEAD_LETTER_SCHEMA) go, exactly once like any output; None: they raise."""
        ...


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """How event time advances in a source: per split, then the minimum over splits.

    A split's watermark is its highest event time so far less `out_of_orderness_ms`, less one. A split
    that has been at its end for `idle_after_ms` is left out of the minimum until its next record.
    """

    event_time: str | None
    """The column with event time: int64 in ms or an Arrow timestamp. None: the record's timestamp."""
    out_of_orderness_ms: int
    idle_after_ms: int | None = None

    @staticmethod
    def bounded_out_of_orderness(
        bound: str | int, event_time: str | None = None, idle_after: str | int | None = None
    ) -> WatermarkStrategy:
        """Records of a split are at most `bound` out of order. Durations: "2 s", "500 ms", or int ms."""
        idle = None if idle_after is None else duration_ms(idle_after, "idle_after")
        return WatermarkStrategy(event_time, duration_ms(bound, "out_of_orderness"), idle)

    @staticmethod
    def monotonous(event_time: str | None = None, idle_after: str | int | None = None) -> WatermarkStrategy:
        """Event time never goes back within a split."""
        return WatermarkStrategy.bounded_out_of_orderness(0, event_time, idle_after)


# --- Sinks --------------------------------------------------------------------------------------


class StagedFiles(Protocol):
    """A writer's door to the checkpoint's own folder, on whatever file system it is.

    Names are made unique per attempt by the engine. A file that no durable checkpoint references is
    deleted by the engine, later.
    """

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """A new file: its path relative to the checkpoint folder, and the file, open for writing.
        Closing makes it durable."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A file that a committable names. Raises CorruptCheckpointError with the path if it is gone."""
        ...


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a writer gets when it is opened in a slot."""

    job: str
    lineage: str
    """Random id of the job's checkpoint folder, made at its very first start: lower-case hex. Two
    folders never share it, so ids that contain it (transactional ids) can't meet."""
    uid: str
    subtask: int
    parallelism: int
    attempt: int
    restored_checkpoint_id: int
    """The checkpoint this attempt started from; 0 at the very first start."""
    files: StagedFiles
    clock: Clock
    on_wait: Callable[[str], None] = lambda reason: None
    checkpoint_interval_ms: int | None = None
    """How far apart barriers are meant to be. None: not known."""


@dataclass(frozen=True, slots=True)
class Committable:
    """What the manifest remembers of one writer's pre-committed output, until it is committed.

    `owner` is the subtask that wrote it, as text; it stays the same after a rescale, when another
    subtask commits it. `payload` is JSON, `paths` the staged files it needs (kept while referenced).
    """

    uid: str
    owner: str
    checkpoint_id: int
    payload: Mapping[str, Json]
    paths: Sequence[str] = ()


class PreCommit(Protocol):
    """Output frozen at a barrier."""

    def stage(self) -> Committable:
        """Make it durable. Called once, on another thread, while the writer goes on."""
        ...


class SinkWriter(Protocol):
    """Takes the rows of one subtask. `write` and `pre_commit` are called by the task's thread,
    `recover` and `commit` by the slot's commit thread, one at a time, `recover` first."""

    def recover(self, committables: Sequence[Committable]) -> None:
        """Fence earlier attempts, then commit what the restored checkpoint promised.

        Called once per attempt, before any commit, also with an empty list. The committables may be
        other owners' (after a rescale). Blocks until it is known to be done. Raises Fatal, Fenced,
        Retryable (the attempt fails and is restarted), DataLossError.
        """
        ...

    def write(self, records: Records) -> None:
        """Take rows into what the next barrier pre-commits. Bounded in memory: spills by itself."""
        ...

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        """Freeze what was written and not committed yet, for this checkpoint.

        Short: no I/O on the caller's thread. Output of an earlier checkpoint that was aborted is part
        of it. Nothing becomes visible.
        """
        ...

    def commit(self, checkpoint_id: int) -> None:
        """The checkpoint is durable: make its output visible; idempotent; returns when known done."""
        ...

    def close(self) -> None:
        """Let go of everything. What is not committed stays invisible."""
        ...


@runtime_checkable
class ThrottlingWriter(Protocol):
    """A writer that can ask for a pause: what it holds while a commit waits has a bound."""

    @property
    def has_room(self) -> bool:
        """False: give it no more rows for now. Only while a commit or a sending ahead is under way, which
        makes room: a barrier must never be what it waits for, since barriers queue behind the rows."""
        ...


class Sink(Protocol):
    """The description of an output. Immutable, picklable, opens nothing when it is made."""

    def check(self, schema: pa.Schema, uid: str) -> None:
        """When the graph is built: raise GraphError if rows of this schema can't be written."""
        ...

    def open_writer(self, context: SinkContext) -> SinkWriter: ...


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """A split in a manifest: the connector's state and the engine's event time for it."""

    split: SplitState
    max_event_time_ms: int | None = None
    is_finished: bool = False
    extra: Mapping[str, Json] = field(default_factory=dict)
