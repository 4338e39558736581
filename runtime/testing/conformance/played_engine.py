"""The engine as a sink sees it, played call by call: attempts, checkpoints, and what of them is durable."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from onceflow.runtime.checkpoint.recovery import owner_slot
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles, PromisedStagedFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import (
    Committable,
    CommitterContext,
    CommittingSink,
    Json,
    Sink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from onceflow.runtime.driver.committers import commit_once
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance.checking import expect_rows, through_json_committable
from onceflow.runtime.testing.conformance.recorded_calls import Calls

JOB, UID = "conformance", "out"


@dataclass(frozen=True)
class Durable:
    """What a manifest has of the sink: what it names is durable, and nothing else is."""

    checkpoint_id: int
    committables: Sequence[Committable]

    def as_json(self) -> Json:
        return json.loads(self.as_text())

    def as_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> Durable:
        return cls.of_json(json.loads(text))

    @classmethod
    def of_json(cls, value: Any) -> Durable:
        return cls(value["checkpoint_id"], [Committable(**each) for each in value["committables"]])


NOTHING = Durable(0, ())
"""What a job starts from at first."""


class Elsewhere(Protocol):
    """Runs one of the SCENARIOS on the same case in a process that knows nothing of this one."""

    def __call__(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        """What the scenario returns; None if it has killed its process. Raises what it has raised."""
        ...


@dataclass(frozen=True)
class PlayedSink:
    """A sink with a fresh output. `records(n)`: a batch of one row that only n has; `visible()`: the rows
    that a careful reader sees, as those n; `store`: the checkpoint folder; `other_schema` and
    `other_records(n)`: rows as a changed program would write them. `lineage`: see SinkContext; no two outputs
    of a system have the same. `elsewhere`: None if the output is in this
    process's memory only. `answers_lost()`: while its context lasts the system does what it is asked and its
    answers are lost; None: nobody knows how to do that."""

    sink: Sink
    store: CheckpointStore
    schema: pa.Schema
    records: Callable[[int], Records]
    visible: Callable[[], Sequence[int]]
    other_schema: pa.Schema
    other_records: Callable[[int], Records]
    lineage: str
    elsewhere: Elsewhere | None = None
    answers_lost: Callable[[], AbstractContextManager[object]] | None = None
    calls: Calls = field(default_factory=Calls)

    @property
    def commits_once(self) -> bool:
        """Whether it has one commit for all its writers."""
        return isinstance(self.sink, CommittingSink)

    def expect(self, rows: Sequence[int], why: str) -> None:
        """A careful reader sees exactly these, in any order."""
        seen = sorted(self.visible())
        self.calls.say(f"a careful reader sees {seen}")
        expect_rows(seen, rows, why)


class Attempt:
    """One run of the job between restarts: it has restored `restored` when it is made."""

    def __init__(
        self,
        case: PlayedSink,
        number: int,
        restored: Durable = NOTHING,
        parallelism: int = 1,
        with_other_schema: bool = False,
        recovers: bool = True,
    ) -> None:
        """`recovers`: False leaves the recovery of the writers to a later `recover`."""
        self._case = case
        self._number = number
        self._restored = restored
        self._schema = case.other_schema if with_other_schema else case.schema
        self._records = case.other_records if with_other_schema else case.records
        case.sink.check(self._schema, UID)
        self._committer = open_committer(case, number, restored, self._schema) if case.commits_once else None
        if self._committer is not None:
            committed = self._committer.last_committed() or 0
            assert committed <= restored.checkpoint_id, (
                f"checkpoint {committed} is committed, and {restored.checkpoint_id} is the latest durable one"
            )
            self._commit_for_all(restored)
        self.writers = [
            open_writer(case, subtask, parallelism, number, restored, self._schema)
            for subtask in range(parallelism)
        ]
        if recovers:
            self.recover()

    def recover(self) -> None:
        """Each writer commits what was promised by the owners that are its now."""
        for subtask, writer in enumerate(self.writers):
            theirs = self._restored.committables if self._committer is None else ()
            writer.recover(
                [
                    through_json_committable(c)
                    for c in theirs
                    if owner_slot(c.owner, len(self.writers)) == subtask
                ]
            )

    def write(self, *numbers: int, subtask: int = 0) -> None:
        for n in numbers:
            self.writers[subtask].write(self._records(n))

    def checkpoint(self, checkpoint_id: int) -> Durable:
        """What its manifest would have. It is durable if it is kept, and dropped if it is not."""
        frozen = [writer.pre_commit(checkpoint_id) for writer in self.writers]
        who = [f"attempt {self._number}, subtask {n}" for n in range(len(self.writers))]
        promises = [
            self._case.calls.watch(each, "PreCommit", f"{name}: pre_commit({checkpoint_id})")
            for each, name in zip(frozen, who, strict=True)
        ]
        return Durable(checkpoint_id, [through_json_committable(each.stage()) for each in promises])

    def commit(self, durable: Durable) -> None:
        self._commit_for_all(durable)
        for writer in self.writers:
            writer.commit(durable.checkpoint_id)

    def close(self) -> None:
        for writer in self.writers:
            writer.close()
        if self._committer is not None:
            self._committer.close()

    def _commit_for_all(self, durable: Durable) -> None:
        if self._committer is not None and durable.committables:
            promised = [through_json_committable(c) for c in durable.committables]
            commit_once(self._committer, UID, durable.checkpoint_id, promised)


def open_writer(
    case: PlayedSink, subtask: int, parallelism: int, attempt: int, restored: Durable, schema: pa.Schema
) -> SinkWriter:
    """A writer of an attempt, as a slot opens it; its calls are written down."""
    who = f"attempt {attempt}, subtask {subtask}"
    case.calls.say(f"{who} of {parallelism} opens a writer; it restores checkpoint {restored.checkpoint_id}")
    context = SinkContext(
        job=JOB,
        lineage=case.lineage,
        uid=UID,
        subtask=subtask,
        parallelism=parallelism,
        attempt=attempt,
        restored_checkpoint_id=restored.checkpoint_id,
        files=AttemptStagedFiles(case.store, attempt, UID, subtask),
        clock=SystemClock(),
        schema=schema,
    )
    writer: SinkWriter = case.calls.watch(case.sink.open_writer(context), "SinkWriter", who)
    return writer


def open_committer(case: PlayedSink, attempt: int, restored: Durable, schema: pa.Schema) -> SinkCommitter:
    """The committer of an attempt, as the driver opens it; its calls are written down."""
    assert isinstance(case.sink, CommittingSink)
    case.calls.say(f"attempt {attempt} opens a committer; it restores checkpoint {restored.checkpoint_id}")
    context = CommitterContext(
        job=JOB,
        lineage=case.lineage,
        uid=UID,
        attempt=attempt,
        restored_checkpoint_id=restored.checkpoint_id,
        schema=schema,
        clock=SystemClock(),
        files=PromisedStagedFiles(case.store),
    )
    who = f"attempt {attempt}, committer"
    committer: SinkCommitter = case.calls.watch(case.sink.open_committer(context), "SinkCommitter", who)
    return committer
