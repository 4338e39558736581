"""What a sink provides: Sink and SinkWriter, and what it may do beyond that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.json_values import Json
from onceflow.runtime.contracts.staging import StagedFiles
from onceflow.runtime.records import Records


@dataclass(frozen=True, slots=True)
class WentBack:
    """The job went on from an older checkpoint than its last one: see going_back.py."""

    to: int
    """The checkpoint whose state and offsets it went on with."""
    past: int
    """The last checkpoint before that: it is abandoned with all after `to`. The next one is a copy of `to`,
    the first of the new output."""
    is_marked: bool = False
    """Whether rows of append-only sinks are to be marked as such that may be there already."""

    def is_begun_by(self, checkpoint_id: int) -> bool:
        """Whether this checkpoint is the copy of `to` with which it began."""
        return checkpoint_id == self.past + 1


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
    schema: pa.Schema
    """The columns of all rows that the writer will get: what `Sink.check` saw. An output that has columns
    of its own is compared with it when the writer is opened, and what can't be written is refused then."""
    on_wait: Callable[[str], None] = lambda reason: None
    checkpoint_interval_ms: int | None = None
    """How far apart barriers are meant to be. None: not known."""
    went_back: WentBack | None = None
    """Set from the time on at which the job has gone back to an older checkpoint."""
    open_function: Callable[[Any], None] = lambda function: None
    """Call open(ctx) of a function object of the user's; its close() is called when the attempt ends."""


@dataclass(frozen=True, slots=True)
class Committable:
    """What the manifest remembers of one writer's pre-committed output, until it is committed.

    One that needs no files, or has them already, may be returned by `pre_commit` as it is: it is its own
    PreCommit. `owner` is the subtask that wrote it, as text; it stays the same after a rescale, when another
    subtask commits it. `payload` is JSON, `paths` the staged files it needs (kept while referenced).
    """

    uid: str
    owner: str
    checkpoint_id: int
    payload: Mapping[str, Json]
    paths: Sequence[str] = ()

    def stage(self) -> Committable:
        """All of it is in the manifest: nothing is left to be made durable."""
        return self


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


@runtime_checkable
class WatermarkedWriter(Protocol):
    """A writer that is told how far event time has come. By the task's thread, between two batches; a new
    writer knows nothing until it is told."""

    def on_watermark(self, time_ms: int) -> None:
        """No row at or before this comes any more, late ones aside. WATERMARK_MAX_MS: the input has ended, no
        row comes at all; a barrier still does."""
        ...

    def on_idle(self) -> None:
        """Nothing comes here for a while: let this writer hold nobody back until `on_watermark` is called,
        which comes before the next rows."""
        ...


@runtime_checkable
class ChangelogSink(Protocol):
    """A sink that knows updates and deletes (`Records.kind`); to any other such a stream is refused."""

    @property
    def takes_kinds(self) -> bool:
        """Whether this sink, with its options, knows updates and deletes."""
        ...


@runtime_checkable
class PartitionedSink(Protocol):
    """A sink that needs all rows with the same values in some columns in one writer, in their order: one that
    updates by key. The engine brings them there, unless they are already."""

    @property
    def partition_columns(self) -> Sequence[str]:
        """Empty: it does not matter. All are columns that can be keys: `Sink.check` comes first."""
        ...


class Sink(Protocol):
    """The description of an output. Immutable, picklable, opens nothing when it is made."""

    def check(self, schema: pa.Schema, uid: str) -> None:
        """When the graph is built: raise GraphError if rows of this schema can't be written. Asks nobody."""
        ...

    def open_writer(self, context: SinkContext) -> SinkWriter:
        """Called in a slot, at the start of each attempt. Raises Fatal in one sentence where the output that
        is there does not fit `context.schema`, Retryable where it can't be reached now."""
        ...
