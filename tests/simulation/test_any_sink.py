"""Micro-batches of any sink: whatever is killed, lost, late or run again with other rows and partitions, what
is seen of a batch is all of one attempt, once.

Spark is simulated: it runs batch after batch, and one again, with other rows, after each crash before its log
has it; committing processes that are dead to it go on as zombies. The two kinds of sinks are one whose commit
is a step, with calls that are lost and late (tests/simulated_target.py), and one that makes part after part
visible, as files are.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.staged_commits.writer import CommitSettings
from onceflow.connectors.staged_rows import CommittedElsewhere, row_files
from onceflow.runtime.contracts import Committable, CommitterContext, SinkContext, SinkWriter
from onceflow.runtime.errors import CorruptCheckpointError, Fatal, Fenced, Indeterminate, OnceflowError
from onceflow.structured_streaming.any_sink.batch_commits import Commits, commit_batch, open_commits
from onceflow.structured_streaming.any_sink.batch_parts import Output, pre_commit
from onceflow.structured_streaming.any_sink.promised_batches import PromisedBatches, first_attempt
from onceflow.structured_streaming.shared_staging import put_sign, sweep
from onceflow.structured_streaming.staging import Folder
from tests.simulated_target import CrashError, SimulatedSystem, SimulatedTarget

SEEDS, BATCHES = 50, 4
SCHEMA = pa.schema([("batch", pa.int64()), ("attempt", pa.int64()), ("n", pa.int64())])
Row = tuple[int, int, int]


class Eager:
    """A Patience that waits for nothing."""

    def wait(self, error: OnceflowError) -> None: ...

    def reset(self) -> None: ...


@dataclass(frozen=True)
class OneStepSink:
    """A TargetSink."""

    system: SimulatedSystem

    def check(self, schema: pa.Schema, uid: str) -> None: ...

    def open_writer(self, context: SinkContext) -> SinkWriter:
        raise NotImplementedError

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        def open_target(owner: str) -> SimulatedTarget:
            return SimulatedTarget(self.system, owner, context.attempt)

        return CommitSettings("sink", open_target, 1_000, context.schema, lambda records: records.batch)


@dataclass(frozen=True)
class ManyStepsSink:
    """A CommittingSink whose commit is as many steps as there are parts, and then the ledger: repeated for
    the same parts it changes nothing, and for others it would mix them."""

    system: SimulatedSystem
    seen: set[str] = field(default_factory=set)

    def check(self, schema: pa.Schema, uid: str) -> None: ...

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return CommittedElsewhere(context)

    def open_committer(self, context: CommitterContext) -> ManyStepsCommitter:
        return ManyStepsCommitter(self, context)


class ManyStepsCommitter:
    """A SinkCommitter."""

    def __init__(self, sink: ManyStepsSink, context: CommitterContext) -> None:
        self._sink, self._context = sink, context
        self._asked: int | None = None

    def last_committed(self) -> int | None:
        _, checkpoint_id = self._sink.system.ledgers.get("0", (0, 0))
        self._asked = checkpoint_id or None
        return self._asked

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        system, asked = self._sink.system, self._asked
        for file in (file for each in committables for file in row_files(each)):
            self._crash_sometimes()
            if self.last_committed() != asked:
                raise Fenced("somebody has committed")
            if file.path not in self._sink.seen:
                system.rows.extend(file.batches(self._context.files))
                self._sink.seen.add(file.path)
        self._crash_sometimes()
        system.ledgers["0"] = (0, checkpoint_id)
        self._crash_sometimes()

    def close(self) -> None: ...

    def _crash_sometimes(self) -> None:
        if self._sink.system.crashes and self._sink.system.choose(8) == 0:
            raise CrashError


class CrashingFolder(Folder):
    """The checkpoint's folder, in which writing a promise may crash, or have no answer."""

    def __init__(self, url: str, system: SimulatedSystem) -> None:
        super().__init__(url)
        object.__setattr__(self, "system", system)

    system: SimulatedSystem

    def put_once(self, name: str, content: bytes) -> bool:
        fate = self.system.choose(12) if self.system.crashes else 11
        if fate == 0:
            raise CrashError
        if fate == 1:
            raise Indeterminate("no answer")
        is_new = super().put_once(name, content)
        if fate == 2:
            raise CrashError
        if fate == 3:
            raise Indeterminate("no answer")
        return is_new


class Query:
    """A query of BATCHES micro-batches."""

    def __init__(self, seed: int, sink: type[OneStepSink] | type[ManyStepsSink], promises: Any) -> None:
        self._random = random.Random(seed)
        self.system = SimulatedSystem(self._random.randrange)
        root = f"memory://{uuid.uuid4()}"
        self._promises = promises(CrashingFolder(f"{root}/checkpoint", self.system))
        self._output = Output(sink(self.system), "job", "0" * 32, "u", SCHEMA, Folder.at(f"{root}/staging"))
        put_sign(self._output.staging)
        self._made: dict[tuple[int, int], list[Row]] = {}
        self._zombies: list[tuple[Commits, int, list[Committable]]] = []

    def run(self) -> None:
        batch = attempt = 0
        while batch < BATCHES:
            attempt += 1
            self.system.crashes = attempt < 40
            try:
                self._run_batch(batch, attempt)
            except (CrashError, Indeterminate):
                continue
            batch += 1
        self.system.crashes = False
        self._let_zombies_try(1.0)
        self.system.settle("0")
        self._judge()

    def _run_batch(self, batch: int, attempt: int) -> None:
        self._let_zombies_try(0.1)
        parts = self._stage(batch, attempt)
        commits = open_commits(self._output, batch, self._promises, lambda who, ms: Eager())
        self._zombies.append((commits, batch, parts))
        commit_batch(commits, self._promises, batch, parts)
        self._crash_sometimes()
        sweep(self._output.staging, batch)
        self._crash_sometimes()

    def _stage(self, batch: int, attempt: int) -> list[Committable]:
        self._made[batch, attempt] = []
        parts = []
        for partition in range(self._random.randrange(1, 4)):
            rows = [(batch, attempt, 10 * partition + n) for n in range(self._random.randrange(3))]
            self._made[batch, attempt] += rows
            arrays = [pa.array(list(column), pa.int64()) for column in zip(*rows, strict=True)]
            content = [pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)] if rows else []
            parts.append(pre_commit(self._output, batch, partition, content))
            self._crash_sometimes()
        return parts

    def _let_zombies_try(self, chance: float) -> None:
        for commits, batch, parts in self._zombies:
            if self._random.random() < chance:
                try:
                    commit_batch(commits, self._promises, batch, parts)
                except (CrashError, Fatal, Fenced, Indeterminate, CorruptCheckpointError):
                    continue

    def _crash_sometimes(self) -> None:
        if self.system.crashes and self._random.random() < 0.1:
            raise CrashError

    def _judge(self) -> None:
        rows = [tuple(row.values()) for batch in self.system.rows for row in batch.to_pylist()]
        assert len(rows) == len(set(rows)), f"twice: {rows}"
        for batch in range(BATCHES):
            seen = {row for row in rows if row[0] == batch}
            attempts = {row[1] for row in seen}
            assert len(attempts) <= 1, f"batch {batch} has rows of attempts {attempts}"
            whole = [rows for (made, _), rows in self._made.items() if made == batch and set(rows) == seen]
            assert whole, f"batch {batch} has only {seen}"


def wrongs(sink: Any, promises: Any = PromisedBatches) -> Iterator[str]:
    """What went wrong, by seed."""
    for seed in range(SEEDS):
        try:
            Query(seed, sink, promises).run()
        except (AssertionError, OnceflowError) as error:
            yield f"{seed}: {error}"


@pytest.mark.parametrize("sink", [OneStepSink, ManyStepsSink])
def test_all_of_one_attempt_is_seen_once(sink: Any) -> None:
    assert list(wrongs(sink)) == []


class PromisesAnew(PromisedBatches):
    """Each attempt at a batch promises its own rows."""

    def promise(self, batch_id: int, committables: Sequence[Committable]) -> tuple[list[Committable], bool]:
        super().promise(batch_id, committables)
        return list(committables), True


class PromisesTooLate(PromisedBatches):
    """An attempt promises, and commits its own rows if nobody had promised before it looked."""

    def promise(self, batch_id: int, committables: Sequence[Committable]) -> tuple[list[Committable], bool]:
        _, is_mine = super().promise(batch_id, [])
        return list(committables), is_mine


class NumbersNobody(PromisedBatches):
    """All who commit a batch are one attempt to the system."""

    def new_attempt(self, batch_id: int) -> int:
        return first_attempt(batch_id) + 1


@pytest.mark.parametrize(
    ("sink", "promises"),
    [(ManyStepsSink, PromisesAnew), (ManyStepsSink, PromisesTooLate), (OneStepSink, NumbersNobody)],
    ids=lambda each: each.__name__,
)
def test_mutant_dies(sink: Any, promises: Callable[..., PromisedBatches]) -> None:
    assert next(wrongs(sink, promises), None)
