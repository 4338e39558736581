"""A sink of your own on a store with transactions: claim, commit, and its tests."""

import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from onceflow.runtime.errors import Fenced, Retryable
from onceflow.sinks.transactional import Target, TargetContext, TransactionalSink
from onceflow.testing.kit import SinkKit, TargetKit

TABLES = """
    create table if not exists output (row text);
    create table if not exists ledger (name text primary key, attempt int, done int);
"""


@dataclass(frozen=True)
class Database:
    """The description: picklable, opens nothing. A TransactionalStore."""

    path: str

    def check(self, schema: pa.Schema, uid: str) -> None:
        """Rows of any columns are written."""

    def open_target(self, context: TargetContext) -> Target:
        return DatabaseTarget(self.path, context.ledger, context.attempt)


@dataclass
class DatabaseTarget:
    path: str
    ledger: str
    attempt: int

    def claim(self) -> int:
        """Fence whoever was here before, and say what is committed."""
        return self._write(None, iter(()))

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        """Rows and ledger in one transaction."""
        self._write(checkpoint_id, rows)

    def close(self) -> None:
        """Each transaction has a connection of its own."""

    def _write(self, checkpoint_id: int | None, rows: Iterator[pa.RecordBatch]) -> int:
        try:
            with sqlite3.connect(self.path) as database:
                database.executescript(TABLES)
                database.execute("begin immediate")
                find = "select attempt, done from ledger where name = ?"
                attempt, done = database.execute(find, [self.ledger]).fetchone() or (
                    0,
                    0,
                )
                if attempt > self.attempt or (checkpoint_id and attempt < self.attempt):
                    raise Fenced(f"attempt {attempt} writes under {self.ledger}")
                for batch in rows:
                    texts = [(json.dumps(row),) for row in batch.to_pylist()]
                    database.executemany("insert into output values (?)", texts)
                done = checkpoint_id or done
                entry = [self.ledger, self.attempt, done]
                database.execute(
                    "insert or replace into ledger values (?, ?, ?)", entry
                )
                return int(done)
        except sqlite3.OperationalError as error:
            raise Retryable(f"{self.path} can't be written now: {error}") from error


# --- Its tests: a file of its own, say test_database.py ---


def numbers(path: str) -> list[int]:
    with sqlite3.connect(path) as database:
        database.executescript(TABLES)
        rows = database.execute("select row from output").fetchall()
    return [json.loads(row)["n"] for (row,) in rows]


class TestDatabase(SinkKit):
    def sink(self) -> TransactionalSink:
        return TransactionalSink(Database(f"{self.folder}/output.db"))

    def visible(self) -> list[int]:
        return numbers(f"{self.folder}/output.db")


class TestDatabaseTarget(TargetKit):
    def store(self) -> Database:
        return Database(f"{self.folder}/output.db")

    def visible(self) -> list[int]:
        return numbers(f"{self.folder}/output.db")
