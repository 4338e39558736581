"""What a source provides: Source, SplitEnumerator, SourceReader. What it may do beyond: `abilities.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.records import Int64s, Kinds


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
    `kind` (int8, one RowKind per row) may be there if the source is a ChangelogSource; None: all are inserts.
    `dead_letters` has DEAD_LETTER_SCHEMA. `at_end`: splits with nothing more to read right now (the
    idle clock runs only for these; a split that is slow to fetch is never idle). `finished`: bounded
    splits read up to their bound; they will not be seen again. `watermarks`: what the source itself knows of
    event time in a split, in ms: behind these rows none comes at or before it (a punctuated watermark, or a
    heartbeat of a quiet split). It only ever raises what the rows' own times and the slack give.
    """

    records: pa.RecordBatch
    row_split: npt.NDArray[np.uint16]
    splits: tuple[str, ...]
    offset: Int64s | None = None
    timestamp_ms: Int64s | None = None
    dead_letters: pa.RecordBatch | None = None
    kind: Kinds | None = None
    at_end: frozenset[str] = frozenset()
    finished: frozenset[str] = frozenset()
    watermarks: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def from_split(records: pa.RecordBatch, split: str, is_finished: bool = False) -> Fetch:
        """Rows that are all of one split, which has no more of them if it is finished."""
        finished = frozenset({split}) if is_finished else frozenset[str]()
        return Fetch(records, np.zeros(records.num_rows, np.uint16), (split,), finished=finished)


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
    wake: Callable[[], None] = lambda: None
    """Call it, from any thread, when a `poll` that just brought nothing would bring something now: the slot's
    loop then polls at once, and not at its next look some milliseconds later."""
    checkpoint_interval_ms: int | None = None
    """How far apart barriers are meant to be. None: not known."""


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

    def close(self) -> None:
        """Lets go of connections and files at the end of the attempt, after a failure too."""
        ...


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
        """Called before a restore: raise DataLossError naming split and offsets where reading can't go on
        exactly (offset deleted by retention, topic deleted or made anew)."""
        ...

    def close(self) -> None:
        """Lets go of connections and files at the end of the run, after a failure too."""
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
    def is_bounded(self) -> bool:
        """Whether the source has an end: then the job finishes when all its splits have been read."""
        ...

    def open_enumerator(self, job: str, clock: Clock) -> SplitEnumerator:
        """Called in the driver, once for each run of the job."""
        ...

    def open_reader(self, context: ReaderContext) -> SourceReader:
        """Called in a slot, at the start of each attempt."""
        ...


@runtime_checkable
class ProjectableSource(Protocol):
    """A source that can leave out columns nobody reads."""

    def project(self, columns: frozenset[str]) -> Source:
        """The same source with only these columns in its schema, in the same order."""
        ...


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """A split in a manifest: the connector's state and the engine's event time for it."""

    split: SplitState
    max_event_time_ms: int | None = None
    is_finished: bool = False
    extra: Mapping[str, Json] = field(default_factory=dict)
