"""A store with a key: the last row of a key counts, and deletes delete."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from onceflow.runtime.errors import Fenced, GraphError
from onceflow.runtime.records import RowKind
from onceflow.sinks.transactional import (
    KIND,
    Target,
    TargetContext,
    TransactionalSink,
    TransactionalStore,
)
from onceflow.testing.kit import SinkKit

TABLES = """
    create table if not exists output (n int primary key);
    create table if not exists ledger (name text primary key, attempt int, done int);
"""


@dataclass(frozen=True)
class Keys:
    path: str

    def check(self, schema: pa.Schema, uid: str) -> None:
        if schema.names != ["n"]:
            raise GraphError(f"sink {uid!r}: rows have {schema.names}: select 'n'")

    def open_target(self, context: TargetContext) -> Target:
        return KeysTarget(self.path, context)


@dataclass
class KeysTarget:
    path: str
    context: TargetContext

    def claim(self) -> int:
        return self._write(None, iter(()))

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        self._write(checkpoint_id, rows)

    def close(self) -> None:
        pass

    def _write(self, checkpoint_id: int | None, rows: Iterator[pa.RecordBatch]) -> int:
        name, mine = self.context.ledger, self.context.attempt
        with closing(sqlite3.connect(self.path)) as database, database:
            database.executescript(TABLES)
            database.execute("begin immediate")
            find = "select attempt, done from ledger where name = ?"
            attempt, done = database.execute(find, [name]).fetchone() or (0, 0)
            if attempt > mine or (checkpoint_id and attempt < mine):
                raise Fenced(f"attempt {attempt} writes under {name}")
            for row in (row for batch in rows for row in batch.to_pylist()):
                gone = row[KIND] in (RowKind.DELETE, RowKind.UPDATE_BEFORE)
                change = "delete from output where n = ?"
                keep = "insert or replace into output values (?)"
                database.execute(change if gone else keep, [row["n"]])
            done = checkpoint_id or done
            replace = "insert or replace into ledger values (?, ?, ?)"
            database.execute(replace, [name, mine, done])
            return int(done)


class TestKeys(SinkKit):
    def sink(self) -> TransactionalSink:
        store: TransactionalStore = Keys(f"{self.folder}/output.db")
        return TransactionalSink(store, key="n")

    def visible(self) -> list[int]:
        with closing(sqlite3.connect(f"{self.folder}/output.db")) as database:
            database.executescript(TABLES)
            return [n for (n,) in database.execute("select n from output")]
