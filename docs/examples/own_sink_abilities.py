"""What a sink may do beyond writing, and the bare suite of sinks, for any test runner."""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from tempfile import mkdtemp

import pyarrow as pa
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import (
    ChangelogSink,
    Committable,
    NoFiles,
    PreCommit,
    Sink,
    SinkContext,
    SinkWriter,
    StagedFiles,
    ThrottlingWriter,
)
from onceflow.runtime.errors import Fenced, GraphError, Retryable
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest
from onceflow.testing.kit import BrokenContract, SinkKit

TABLES = """
    create table if not exists output (row text);
    create table if not exists ledger (owner text primary key, checkpoint_id int, attempt int);
"""


@dataclass(frozen=True)
class Database:
    path: str
    takes_kinds: bool = (
        False  # it would be a ChangelogSink that knows updates and deletes
    )

    def check(self, schema: pa.Schema, uid: str) -> None:
        if not schema.names:
            raise GraphError(f"sink {uid!r}: a row needs a column")

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return DatabaseWriter(self.path, context)


@dataclass
class DatabaseWriter:
    path: str
    context: SinkContext
    rows: list[str] = field(default_factory=list)
    """Written and not committed, also those of aborted checkpoints."""
    frozen: dict[int, int] = field(default_factory=dict)
    """How many of them belong to each checkpoint."""

    @property
    def has_room(self) -> bool:
        """A ThrottlingWriter: while a commit makes room, no more than this waits."""
        return not self.frozen or len(self.rows) < 1_000_000

    def recover(self, committables: Sequence[Committable]) -> None:
        self._commit(
            str(self.context.subtask),
            self.context.restored_checkpoint_id,
            [],
            begins=True,
        )
        for promised in committables:
            self._commit(
                promised.owner,
                promised.checkpoint_id,
                promised.payload["rows"],
                begins=True,
            )

    def write(self, records: Records) -> None:
        self.rows += [json.dumps(row) for row in records.batch.to_pylist()]

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self.frozen[checkpoint_id] = len(self.rows)
        return Frozen(self.context, checkpoint_id, list(self.rows))

    def commit(self, checkpoint_id: int) -> None:
        count = self.frozen.get(checkpoint_id, 0)
        self._commit(str(self.context.subtask), checkpoint_id, self.rows[:count])
        del self.rows[:count]
        self.frozen = {
            n: kept - count for n, kept in self.frozen.items() if n > checkpoint_id
        }

    def close(self) -> None:
        pass

    def _commit(
        self, owner: str, checkpoint_id: int, rows: Sequence[str], begins: bool = False
    ) -> None:
        """Rows and ledger in one transaction; nothing if the ledger has them; fenced if it knows a newer
        attempt."""
        try:
            with sqlite3.connect(self.path) as database:
                database.execute("begin immediate")
                found = database.execute(
                    "select * from ledger where owner = ?", [owner]
                ).fetchone()
                _, done, attempt = found or (owner, 0, 0)
                if attempt > self.context.attempt or (
                    not begins and attempt != self.context.attempt
                ):
                    raise Fenced(f"attempt {attempt} writes the output of {owner}")
                if rows and done < checkpoint_id:
                    database.executemany(
                        "insert into output values (?)", [(row,) for row in rows]
                    )
                ledger = [
                    owner,
                    max(done, checkpoint_id) if rows else done,
                    self.context.attempt,
                ]
                database.execute(
                    "insert or replace into ledger values (?, ?, ?)", ledger
                )
        except sqlite3.OperationalError as error:
            raise Retryable(f"{self.path} can't be written now: {error}") from error


@dataclass(frozen=True)
class Frozen:
    """Here the rows are part of the manifest; what is large goes to files of context.files (StagedFiles)."""

    context: SinkContext
    checkpoint_id: int
    rows: Sequence[str]

    def stage(self) -> Committable:
        payload = {"rows": list(self.rows)}
        return Committable(
            self.context.uid, str(self.context.subtask), self.checkpoint_id, payload
        )


schema = pa.schema([("n", pa.int64())])
files: StagedFiles = NoFiles()  # type: ignore[assignment]  # this sink stages none
for check in SINK_CHECKS:
    path = f"{mkdtemp()}/output.db"
    sqlite3.connect(path).executescript(TABLES)
    sink: Sink = Database(path)
    assert isinstance(sink, ChangelogSink)

    def open_writer(
        subtask: int, parallelism: int, attempt: int, restored: int, sink: Sink = sink
    ) -> SinkWriter:
        clock = SystemClock()
        context = SinkContext(
            "job",
            "beef",
            "out",
            subtask,
            parallelism,
            attempt,
            restored,
            files,
            clock,
            schema,
        )
        writer = sink.open_writer(context)
        assert isinstance(writer, ThrottlingWriter)
        return writer

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n}], schema))

    def visible(path: str = path) -> list[int]:
        rows = sqlite3.connect(path).execute("select row from output").fetchall()
        return [json.loads(row)["n"] for (row,) in rows]

    check(SinkUnderTest(open_writer, records, visible))


class TestForgetful(SinkKit):
    """A kit without pytest: check_all() runs all, check(name) one; here a wrong one is caught."""

    in_new_processes = False

    def sink(self) -> Database:
        return Database(f"{self.folder}/output.db")

    def visible(self) -> list[int]:
        return [1]


try:
    TestForgetful.check("an_empty_checkpoint_is_none_the_worse")
except BrokenContract as broken:
    assert "The contract says" in str(broken)
