"""A sink from scratch: rows to a table of SQLite, with a ledger in the same transaction."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pyarrow as pa
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Fenced, Retryable
from onceflow.runtime.records import Records
from onceflow.testing.kit import SinkKit

TABLES = """
    create table if not exists output (row text);
    create table if not exists ledger (name text primary key, attempt int, done int);
"""


@dataclass(frozen=True)
class Database:
    path: str

    def check(self, schema: pa.Schema, uid: str) -> None:
        pass  # rows of any columns are written; else raise GraphError

    def open_writer(self, context: SinkContext) -> "DatabaseWriter":
        return DatabaseWriter(self.path, context)


@dataclass
class DatabaseWriter:
    path: str
    context: SinkContext
    rows: list[str] = field(default_factory=list)  # written and not committed
    frozen: dict[int, int] = field(default_factory=dict)  # how many, by checkpoint

    def recover(self, committables: Sequence[Committable]) -> None:
        self._commit(str(self.context.subtask), 0, [])
        for promise in committables:
            self._commit(promise.owner, promise.checkpoint_id, promise.payload["rows"])

    def write(self, records: Records) -> None:
        self.rows += [json.dumps(row) for row in records.batch.to_pylist()]

    def pre_commit(self, checkpoint_id: int) -> Committable:
        self.frozen[checkpoint_id] = len(self.rows)
        owner, rows = str(self.context.subtask), {"rows": list(self.rows)}
        return Committable(self.context.uid, owner, checkpoint_id, rows)

    def commit(self, checkpoint_id: int) -> None:
        done = self.frozen.get(checkpoint_id, 0)
        self._commit(str(self.context.subtask), checkpoint_id, self.rows[:done])
        del self.rows[:done]
        self.frozen = {n: k - done for n, k in self.frozen.items() if n > checkpoint_id}

    def close(self) -> None:
        pass

    def _commit(self, owner: str, checkpoint_id: int, rows: Sequence[str]) -> None:
        name = f"{self.context.lineage}/{self.context.uid}/{owner}"
        try:
            with closing(sqlite3.connect(self.path)) as database, database:
                database.executescript(TABLES)
                database.execute("begin immediate")
                find = "select attempt, done from ledger where name = ?"
                attempt, done = database.execute(find, [name]).fetchone() or (0, 0)
                if attempt > self.context.attempt:
                    raise Fenced(f"attempt {attempt} writes the output of {name}")
                if done < checkpoint_id:
                    database.executemany("insert into output values (?)", zip(rows))
                entry = [name, self.context.attempt, max(done, checkpoint_id)]
                database.execute("replace into ledger values (?, ?, ?)", entry)
        except sqlite3.OperationalError as error:
            raise Retryable(f"{self.path} can't be written now: {error}") from error


# --- The test of it: a file of its own, run by pytest ---


class TestDatabase(SinkKit):
    def sink(self) -> Database:
        return Database(f"{self.folder}/output.db")

    def visible(self) -> list[int]:
        with closing(sqlite3.connect(f"{self.folder}/output.db")) as database:
            database.executescript(TABLES)
            rows = database.execute("select row from output").fetchall()
        return [json.loads(row)["n"] for (row,) in rows]
