"""Sinks that are wrong in one way each: the sink of the documents, and the check that has to notice."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Indeterminate
from onceflow.runtime.records import Records
from tests.conformance.own_connectors import own_sink

Writer: Any = own_sink.DatabaseWriter
LOSES_ANSWERS: set[str] = set()
"""Databases whose answers are lost."""


def insert(path: str, rows: Sequence[str]) -> None:
    """Rows, and nothing of a ledger."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(own_sink.TABLES)
        database.executemany("insert into output values (?)", [[row] for row in rows])


class Right(Writer):
    """Nothing is wrong with it."""

    def _commit(self, owner: str, checkpoint_id: int, rows: Sequence[str]) -> None:
        super()._commit(owner, checkpoint_id, rows)
        if self.path in LOSES_ANSWERS:
            raise Indeterminate("no answer")


class WritesAtOnce(Writer):
    def write(self, records: Records) -> None:
        insert(self.path, [json.dumps(row) for row in records.batch.to_pylist()])


class PublishesWhenStaged(Writer):
    def pre_commit(self, checkpoint_id: int) -> Any:
        frozen, path = super().pre_commit(checkpoint_id), self.path

        class Published:
            def stage(self) -> Committable:
                insert(path, frozen.payload["rows"])
                return frozen.stage()  # type: ignore[no-any-return]

        return Published()


class FlushesWhenClosed(Writer):
    def close(self) -> None:
        insert(self.path, self.rows)


class PublishesLeftovers(Writer):
    """What was staged, by whomever, is published by the next recovery."""

    leftovers: ClassVar[dict[str, list[str]]] = {}

    def pre_commit(self, checkpoint_id: int) -> Any:
        self.leftovers[self.path] = list(self.rows)
        return super().pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        super().commit(checkpoint_id)
        self.leftovers[self.path] = []

    def recover(self, committables: Sequence[Committable]) -> None:
        super().recover(committables)
        insert(self.path, self.leftovers.pop(self.path, []))


class HasNoLedger(Writer):
    def _commit(self, owner: str, checkpoint_id: int, rows: Sequence[str]) -> None:
        insert(self.path, rows)
        if self.path in LOSES_ANSWERS:
            raise Indeterminate("no answer")


class CommitsAgain(HasNoLedger):
    """It keeps what it has committed, and commits it with the next."""

    def commit(self, checkpoint_id: int) -> None:
        self._commit("0", checkpoint_id, self.rows[: self.frozen.get(checkpoint_id, 0)])


class MindsNothingToWrite(Writer):
    def commit(self, checkpoint_id: int) -> None:
        if not self.rows:
            raise ValueError("there are no rows")
        super().commit(checkpoint_id)


class ForgetsAborted(Writer):
    def pre_commit(self, checkpoint_id: int) -> Any:
        frozen = super().pre_commit(checkpoint_id)
        self.frozen = {checkpoint_id: len(self.rows)}
        kept, self.kept = getattr(self, "kept", 0), len(self.rows)
        return replace(frozen, payload={"rows": frozen.payload["rows"][kept:]})

    def commit(self, checkpoint_id: int) -> None:
        del self.rows[: self.frozen.get(checkpoint_id, 0) - 1]
        self.frozen[checkpoint_id] = 1
        super().commit(checkpoint_id)


class CommitsAllThereIs(Writer):
    def commit(self, checkpoint_id: int) -> None:
        self.frozen[checkpoint_id] = len(self.rows)
        super().commit(checkpoint_id)


class RecoversNothing(Writer):
    def recover(self, committables: Sequence[Committable]) -> None:
        super().recover([])


class RecoversItsOwn(Writer):
    def recover(self, committables: Sequence[Committable]) -> None:
        super().recover([c for c in committables if c.owner == str(self.context.subtask)])


class OneLedgerForAll(Writer):
    def _commit(self, owner: str, checkpoint_id: int, rows: Sequence[str]) -> None:
        super()._commit("all", checkpoint_id, rows)


class FencesNobody(Writer):
    """All attempts share one; and its ledger is what it remembers."""

    def _commit(self, owner: str, checkpoint_id: int, rows: Sequence[str]) -> None:
        done = getattr(self, "done", self.context.restored_checkpoint_id)
        if checkpoint_id > done or (checkpoint_id == done and not hasattr(self, "done")):
            insert(self.path, rows)
            self.done = checkpoint_id


class NamesOnlyItsNewFiles(Writer):
    """Rows are staged in files; a committable names those of its own checkpoint, and needs older ones too."""

    names_needed: ClassVar[bool] = True

    def pre_commit(self, checkpoint_id: int) -> Any:
        super().pre_commit(checkpoint_id)
        files = self.files = getattr(self, "files", [])
        old = sum(count for _, count in files)
        new, writer = self.rows[old:], self

        class Staged:
            def stage(self) -> Committable:
                path, file = writer.context.files.create("rows")
                with file:
                    file.write(json.dumps(new).encode())
                files.append((path, len(new)))
                paths = [path] if writer.names_needed else []
                payload = {"files": [path for path, _ in files]}
                return Committable("out", str(writer.context.subtask), checkpoint_id, payload, paths)

        return Staged()

    def recover(self, committables: Sequence[Committable]) -> None:
        read: list[Committable] = []
        for promise in committables:
            rows: list[str] = []
            for path in promise.payload["files"]:
                with self.context.files.open(path) as file:
                    rows += json.loads(file.read())
            read.append(replace(promise, payload={"rows": rows}))
        super().recover(read)


class NamesNoFiles(NamesOnlyItsNewFiles):
    names_needed = False


class PromisesFromMemory(Writer):
    """The committable is a key of what this process remembers."""

    memory: ClassVar[dict[str, list[str]]] = {}

    def pre_commit(self, checkpoint_id: int) -> Any:
        frozen = super().pre_commit(checkpoint_id)
        self.memory[str(checkpoint_id)] = frozen.payload["rows"]
        return replace(frozen, payload={"key": str(checkpoint_id)})

    def recover(self, committables: Sequence[Committable]) -> None:
        found = [self.memory.get(str(c.checkpoint_id), []) for c in committables]
        super().recover(
            [replace(c, payload={"rows": rows}) for c, rows in zip(committables, found, strict=True)]
        )


class MindsOtherColumns(Writer):
    def write(self, records: Records) -> None:
        if records.batch.schema.names != ["n"]:
            raise KeyError("note")
        super().write(records)


class DropsWhatOtherColumnsPromised(Writer):
    def recover(self, committables: Sequence[Committable]) -> None:
        super().recover(committables if self.context.schema.names == ["n"] else [])


@dataclass(frozen=True)
class Database:
    path: str
    writer: Callable[[str, SinkContext], Any]

    def check(self, schema: object, uid: str) -> None:
        pass

    def open_writer(self, context: SinkContext) -> Any:
        return self.writer(self.path, context)


class BrokenKit(own_sink.TestDatabase):  # type: ignore[misc]
    """The kit of a writer; a kit is a class of a module, since new processes import it."""

    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = Right

    def sink(self) -> Database:
        return Database(f"{self.folder}/output.db", self.part)

    @contextlib.contextmanager
    def answers_lost(self) -> Iterator[None]:
        LOSES_ANSWERS.add(f"{self.folder}/output.db")
        yield
        LOSES_ANSWERS.clear()


class PromisesFromMemoryKit(BrokenKit):
    in_new_processes = True
    part = PromisesFromMemory


KILLERS: dict[Any, str] = {
    WritesAtOnce: """nothing_is_visible_before_the_commit killed_before_write_of_a_writer
        killed_after_write_of_a_writer killed_before_pre_commit_of_a_writer
        killed_after_pre_commit_of_a_writer killed_before_stage_of_a_pre_commit""",
    PublishesWhenStaged: "killed_after_stage_of_a_pre_commit",
    FlushesWhenClosed: "output_of_an_attempt_that_failed_is_never_seen",
    PublishesLeftovers: "output_behind_the_last_checkpoint_is_never_seen",
    HasNoLedger: """recovery_commits_what_was_promised_once recovery_after_the_commit_changes_nothing
        killed_after_commit_of_a_writer a_commit_whose_answer_is_lost_is_done_once""",
    CommitsAgain: "commit_may_be_told_twice",
    MindsNothingToWrite: "an_empty_checkpoint_is_none_the_worse",
    ForgetsAborted: "output_of_an_aborted_checkpoint_is_part_of_the_next",
    CommitsAllThereIs: "rows_after_the_barrier_belong_to_the_next_checkpoint",
    RecoversNothing: """killed_before_commit_of_a_writer killed_before_recover_of_a_writer
        killed_after_recover_of_a_writer""",
    RecoversItsOwn: """another_parallelism_commits_for_the_owners_of_before
        fewer_subtasks_commit_what_more_have_promised""",
    OneLedgerForAll: "more_subtasks_commit_what_fewer_have_promised",
    FencesNobody: """an_older_attempt_can_not_commit_any_more an_older_attempt_that_goes_on_adds_nothing
        a_late_recovery_of_an_older_attempt_adds_nothing""",
    NamesOnlyItsNewFiles: "a_dropped_committable_is_needed_by_nobody",
    NamesNoFiles: "what_is_staged_lasts_as_long_as_it_is_named",
    PromisesFromMemoryKit: "a_new_process_commits_what_was_promised",
    MindsOtherColumns: "rows_of_another_schema_are_written_or_refused",
    DropsWhatOtherColumnsPromised: "a_promise_outlives_a_change_of_the_schema",
}
"""Each wrong writer, and the checks that it must fail."""
