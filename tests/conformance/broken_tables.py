"""Tables and Targets that are wrong in one way each, and the checks that have to notice."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from onceflow.runtime.contracts import Committable, CommitterContext, SinkContext
from onceflow.runtime.records import Records
from onceflow.runtime.testing.connectors.folder_table import (
    FolderTable,
    FolderTableCommitter,
    FolderTableWriter,
)
from onceflow.testing.kit import CommittingSinkKit
from tests.conformance.own_connectors import own_target

# --- Tables: one commit for all writers -----------------------------------------------------------------


class RightWriter(FolderTableWriter):
    """Nothing is wrong with it."""


class RightCommitter(FolderTableCommitter):
    """Nothing is wrong with it."""


class CommitsTheFirstOnly(RightCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        super().commit(checkpoint_id, committables[:1])


class TellsNothing(RightCommitter):
    def last_committed(self) -> int | None:
        super().last_committed()
        return None


class CommitsItsOwnAttempt(RightCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        mine = [c for c in committables if f".{self.attempt}.arrow" in str(c.payload["parts"])]
        super().commit(checkpoint_id, mine)

    attempt: int


class MindsNothingToCommit(RightCommitter):
    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        if not any(c.payload["parts"] for c in committables):
            raise ValueError("there is nothing to commit")
        super().commit(checkpoint_id, committables)


class AsksWhenItCommits(RightCommitter):
    """It does not notice who has committed meanwhile."""

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        super().last_committed()
        super().commit(checkpoint_id, committables)


class ForgetsAborted(RightWriter):
    def pre_commit(self, checkpoint_id: int) -> Any:
        promise = super().pre_commit(checkpoint_id)
        self._batches = []
        return promise

    def commit(self, checkpoint_id: int) -> None:
        pass


class ShowsAtOnce(RightWriter):
    def write(self, records: Records) -> None:
        super().write(records)
        table = Path(self._path)
        number = len(list((table / "commits").glob("[0-9]*.json"))) + 1
        sent = pa.BufferOutputStream()
        with pa.ipc.new_stream(sent, records.batch.schema) as stream:
            stream.write_batch(records.batch)
        (table / "parts" / f"at-once-{number}").write_bytes(sent.getvalue().to_pybytes())
        commit = {"ledger": "", "checkpoint_id": 0, "parts": [f"at-once-{number}"]}
        (table / "commits" / f"{number:010d}.json").write_text(json.dumps(commit))


@dataclass(frozen=True)
class Table(FolderTable):
    writer: Any = RightWriter
    committer: Any = RightCommitter

    def open_writer(self, context: SinkContext) -> Any:
        right = super().open_writer(context)
        return self.writer(right._path, context, False)

    def open_committer(self, context: CommitterContext) -> Any:
        commits, ledger = Path(self.path) / "commits", f"{context.lineage}.{context.uid}"
        committer = self.committer(commits, ledger)
        committer.attempt = context.attempt
        return committer


class BrokenTableKit(CommittingSinkKit):
    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = RightWriter

    def sink(self) -> Table:
        is_writer = issubclass(self.part, FolderTableWriter)
        parts = {"writer": self.part} if is_writer else {"committer": self.part}
        return Table(f"{self.folder}/table", **parts)

    def visible(self) -> list[int]:
        there = Path(self.folder, "table", "schema.arrow").exists()
        return self.sink().read()["n"].to_pylist() if there else []


TABLE_KILLERS: dict[Any, str] = {
    CommitsTheFirstOnly: "all_writers_become_visible_by_one_commit",
    TellsNothing: """what_is_committed_is_known_to_be a_commit_that_was_done_is_not_done_again
        killed_after_commit_of_a_committer""",
    CommitsItsOwnAttempt: """what_was_promised_is_committed_by_a_later_attempt
        killed_before_commit_of_a_committer""",
    ForgetsAborted: "output_of_an_aborted_checkpoint_is_part_of_the_next",
    MindsNothingToCommit: "an_empty_checkpoint_is_none_the_worse",
    AsksWhenItCommits: "a_frozen_attempt_can_not_commit_any_more",
    ShowsAtOnce: """killed_before_last_committed_of_a_committer
        killed_after_last_committed_of_a_committer""",
}
"""The checks that only CommittingSinkKit has; those of all sinks are in broken_sinks.py."""

# --- Targets --------------------------------------------------------------------------------------------

Target: Any = own_target.DatabaseTarget


class StartsAtOne(Target):
    def claim(self) -> int:
        return max(1, super().claim())


class ForgetsItsLedger(Target):
    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        self._write(None, rows)


class LeavesOutEmptyCommits(Target):
    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        if batches := list(rows):
            super().commit(checkpoint_id, iter(batches))


class OneLedgerForAll(Target):
    def _write(self, checkpoint_id: int | None, rows: Iterator[pa.RecordBatch]) -> int:
        self.ledger = "all"
        return int(super()._write(checkpoint_id, rows))


class FencesNobody(Target):
    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        self.attempt = 1_000
        super().commit(checkpoint_id, rows)


class LetsEverybodyClaim(Target):
    def claim(self) -> int:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executescript(own_target.TABLES)
            database.execute("update ledger set attempt = 0 where name = ?", [self.ledger])
        return int(super().claim())


class WritesRowByRow(Target):
    """It looks at the ledger first, and then each batch is a transaction of its own."""

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        super().commit(checkpoint_id - 1, iter(()))
        for batch in rows:
            texts = [[json.dumps(row)] for row in batch.to_pylist()]
            with closing(sqlite3.connect(self.path)) as database, database:
                database.executemany("insert into output values (?)", texts)
        super().commit(checkpoint_id, iter(()))


class ClaimsOnce(Target):
    def claim(self) -> int:
        done = super().claim() if not hasattr(self, "is_claimed") else 0
        self.is_claimed = True
        return int(done)


class ForgetsWhenClosed(Target):
    def close(self) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute("delete from ledger")


class TargetStore(own_target.Database):  # type: ignore[misc]
    target: ClassVar[Any] = Target

    def open_target(self, context: Any) -> Any:
        return self.target(self.path, context.ledger, context.attempt)


class BrokenTargetKit(own_target.TestDatabaseTarget):  # type: ignore[misc]
    __test__ = False
    in_new_processes = False
    part: ClassVar[Any] = Target

    def store(self) -> Any:
        store = type("Store", (TargetStore,), {"target": self.part})
        return store(f"{self.folder}/output.db")


class WritesRowByRowKit(BrokenTargetKit):
    in_new_processes = True
    part = WritesRowByRow


class ForgetsItsLedgerKit(BrokenTargetKit):
    in_new_processes = True
    part = ForgetsItsLedger


TARGET_KILLERS: dict[Any, str] = {
    StartsAtOne: "a_new_ledger_says_nothing_is_committed",
    ForgetsItsLedger: """a_commit_makes_rows_visible_and_the_ledger_know_it
        the_ledger_tells_what_a_lost_answer_did_not""",
    LeavesOutEmptyCommits: "a_commit_without_rows_is_in_the_ledger",
    OneLedgerForAll: "each_owner_has_a_ledger_of_its_own",
    FencesNobody: "an_older_attempt_can_not_commit",
    LetsEverybodyClaim: "an_older_attempt_can_not_claim",
    WritesRowByRow: """a_claim_ends_a_commit_that_is_under_way_or_waits_for_it
        a_commit_that_fails_half_way_leaves_nothing""",
    ClaimsOnce: "a_claim_may_be_repeated",
    ForgetsWhenClosed: "what_was_closed_connects_anew",
    WritesRowByRowKit: "a_process_that_is_killed_inside_a_commit_leaves_nothing",
    ForgetsItsLedgerKit: "a_process_that_is_killed_behind_a_commit_has_done_it",
}
"""A wrong Target, or the kit of one where that has to be found by another process."""
