"""StagedCommitsWriter: the SinkWriter of a sink with a Target. Rows wait in the checkpoint folder until their
checkpoint is durable, and then go to the Target in one step, subtask by subtask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import pyarrow as pa

from onceflow.connectors.recovery import Recovery
from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.connectors.staged_commits.target import Target
from onceflow.connectors.staged_rows import RowFile, StagedRowsWriter, row_files
from onceflow.connectors.waiting import WaitForSystem
from onceflow.runtime.contracts import Committable, PreCommit, PromisedFiles, SinkContext
from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import Records

_CLOSE_S = 5.0
_RECOVERY_EXTRA_S = 60.0


@dataclass(frozen=True)
class CommitSettings:
    """What a sink says of its writers. `who`: the sink on the live line, as in "PostgreSQL sink".
    `give_up_after_ms`: how long the system may be away before the attempt fails."""

    who: str
    open_target: Callable[[str], Target]
    """Makes the Target of an owner, which is the text of a subtask's number."""
    give_up_after_ms: int
    staged_schema: pa.Schema
    """The columns of what is staged, and of what the Target gets."""
    staged: Callable[[Records], pa.RecordBatch]
    """The rows as they are staged."""
    keeps_ledger: bool = True
    """False: the system keeps none, and takes a checkpoint twice without harm. Its Targets say only what they
    have committed themselves, and the checkpoint is believed."""


@runtime_checkable
class TargetSink(Protocol):
    """A sink whose `open_writer(context)` is `StagedCommitsWriter(context, self.commit_settings(context))`.

    With the settings alone rows get to its Targets by another way, too: as a format of Structured Streaming
    (onceflow/structured_streaming/any_sink) tasks stage rows, and the driver's owner "0" commits them.
    """

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """What its writers are told. Asks nobody: the system is asked by the Targets that they open."""
        ...


class StagedCommitsWriter:
    """See the module, and contracts.SinkWriter."""

    def __init__(self, context: SinkContext, settings: CommitSettings) -> None:
        self._context = context
        self._settings = settings
        self._rows = StagedRowsWriter(replace(context, schema=settings.staged_schema))
        self._closed = threading.Event()
        self._in_use = threading.Lock()
        """Around all that uses a Target."""
        self._recovery = Recovery(context.uid, settings.give_up_after_ms / 1000 + _RECOVERY_EXTRA_S)
        self._own_name = str(context.subtask)
        self._own: OwnerCommits | None = None

    def recover(self, committables: Sequence[Committable]) -> None:
        with self._recovery.under_way(), self._in_use:
            for committable in committables:
                self._recover(committable)
            if self._own is None:
                self._own = self._commits(self._own_name, None)
                self._own.claim(self._context.restored_checkpoint_id)

    def write(self, records: Records) -> None:
        if len(records):
            self._rows.write(Records(self._settings.staged(records)))

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        return _Promise(self._rows.pre_commit(checkpoint_id), self)

    def commit(self, checkpoint_id: int) -> None:
        files = self._rows.promised(checkpoint_id)
        if files:
            with self._in_use:
                if self._closed.is_set():
                    raise Retryable(f"sink {self._context.uid!r} is closed")
                assert self._own is not None, "recover comes first"
                self._own.commit(checkpoint_id, lambda: _batches(files, self._context.files))
        self._rows.forget(checkpoint_id)

    def close(self) -> None:
        """Does not wait long for a commit that waits for the system: that one lets go when it notices."""
        self._closed.set()
        self._recovery.close()
        if self._in_use.acquire(timeout=_CLOSE_S):
            if self._own is not None:
                self._own.close()
            self._in_use.release()

    def promised(self, committable: Committable) -> Committable:
        """Add what the ledger said last, so that a ledger that was lost is noticed."""
        self._recovery.wait()
        assert self._own is not None, "it has recovered"
        return replace(committable, payload={**committable.payload, "ledger": self._own.last_seen})

    def _recover(self, committable: Committable) -> None:
        last_seen = committable.payload.get("ledger")
        commits = self._commits(committable.owner, last_seen if isinstance(last_seen, int) else None)
        files = row_files(committable)
        if committable.owner == self._own_name:
            self._own = commits
            commits.claim(self._context.restored_checkpoint_id)
        if files:
            commits.commit(committable.checkpoint_id, lambda: _batches(files, self._context.files))
        if commits is not self._own:
            commits.close()

    def _commits(self, owner: str, last_seen: int | None) -> OwnerCommits:
        context, settings = self._context, self._settings
        patience = WaitForSystem(
            settings.who, context.clock, context.on_wait, settings.give_up_after_ms, self._closed
        )
        name = f"sink {context.uid!r}, subtask {owner}"
        return OwnerCommits(name, settings.open_target(owner), patience, last_seen, settings.keeps_ledger)


def _batches(files: Sequence[RowFile], folder: PromisedFiles) -> Iterator[pa.RecordBatch]:
    for file in files:
        yield from file.batches(folder)


@dataclass(frozen=True, slots=True)
class _Promise:
    """See contracts.PreCommit."""

    rows: PreCommit
    writer: StagedCommitsWriter

    def stage(self) -> Committable:
        return self.writer.promised(self.rows.stage())
