"""Rows given to functions of your own, once their checkpoint is durable; exactly once by `batch_id`."""

import sqlite3
from dataclasses import dataclass
from tempfile import mkdtemp

import pyarrow as pa
from onceflow import BatchContext, Job, Retryable


@dataclass(frozen=True)
class User:
    name: str


path = f"{mkdtemp()}/users.db"
sqlite3.connect(path).executescript(
    "create table users (name text); create table seen (batch_id text primary key);"
)


def write(batch: pa.RecordBatch, context: BatchContext) -> None:
    try:
        with sqlite3.connect(path) as database:  # one transaction
            if database.execute(
                "insert or ignore into seen values (?)", [context.batch_id]
            ).rowcount:
                names = batch.column("name").to_pylist()
                database.executemany(
                    "insert into users values (?)", [(name,) for name in names]
                )
    except (
        sqlite3.OperationalError
    ) as error:  # locked: the job restarts, and the batch comes again
        raise Retryable(f"users.db can't be written: {error}") from error


job = Job("users")
users = job.from_elements(User("ann"), User("bob"))
users.foreach_batch(write)
users.foreach(lambda user: print(user.name))  # for each record
job.run(master="threads[1]")
assert sqlite3.connect(path).execute("select count(*) from users").fetchone() == (2,)
