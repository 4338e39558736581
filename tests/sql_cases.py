"""What every sink on a SQL database has to do right, whichever it is. The tests of each subclass these,
beside their fixtures `server`, a running one, and `table`, the name of a new one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.connectors.staged_commits.target import Target
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fenced, Indeterminate, JobFailedError, Retryable
from onceflow.runtime.records import Records, RowKind
from tests.answer_proxy import AnswerProxy

WAIT_S = 240.0


class SqlServer(Protocol):
    """A real server."""

    port: int

    @property
    def url(self) -> str: ...

    def url_by(self, port: int) -> str:
        """The URL that leads to it by another port of this machine."""
        ...

    def start(self) -> None: ...

    def kill(self) -> None: ...

    def rows(self, query: str) -> list[Any]: ...

    def execute(self, *statements: str) -> None: ...


class Eager:
    """A Patience that waits for nothing, and counts."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    def wait(self, error: Exception) -> None:
        self.errors.append(error)

    def reset(self) -> None: ...


def owner(table: str, attempt: int) -> LedgerOwner:
    """The only one of a job of its own."""
    return LedgerOwner(table, "out", "0", "job", attempt)


def batches(*numbers: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"n": pa.array(numbers, pa.int64())})


def write(sink: Any, rows: Any, uid: str = "out") -> None:
    """A job that writes these rows, and ends."""
    job = Job("rows")
    job.from_records(rows).sink_to(sink, uid=uid)
    job.run(master="threads[1]")


class SqlSinkCases:
    """Keys, and rows that are refused."""

    sink_type: ClassVar[Any]
    quote: ClassVar[str]
    """Around a name that is a word of SQL."""

    def test_the_last_row_of_a_key_counts_and_deletes_delete(self, server: SqlServer, table: str) -> None:
        """Updates that move a row to another key take the old one away; several checkpoints."""
        sink = self.sink_type(server.url, table, key=["a", "b"], create_table=True)
        schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
        files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
        writer = sink.open_writer(SinkContext("job", table, "out", 0, 1, 1, 0, files, SystemClock(), schema))
        writer.recover([])
        new, before, after, gone = RowKind
        checkpoints = [
            [(new, 1, "x", 1), (new, 1, "y", 2), (new, 1, "x", 3), (new, 2, "x", 4), (gone, 2, "x", 4)],
            [(before, 1, "y", 2), (after, 1, "Y", 5), (before, 1, "x", 3), (after, 1, "x", 6)],
            [(gone, 1, "Y", 5), (new, 1, "Y", 7), (gone, 9, "q", 0), (gone, 8, "it's", 0)],
        ]
        seen = []
        for n, rows in enumerate(checkpoints, 1):
            kinds, *columns = zip(*rows, strict=True)
            batch = pa.record_batch([pa.array(c) for c in columns], schema=schema)
            writer.write(Records(batch, kind=np.array(kinds, np.int8)))
            writer.pre_commit(n).stage()
            writer.commit(n)
            seen.append(server.rows(f"SELECT a, b, v FROM {table} ORDER BY a, b"))
        writer.close()
        assert seen == [[(1, "x", 3), (1, "y", 2)], [(1, "Y", 5), (1, "x", 6)], [(1, "Y", 7), (1, "x", 6)]]

    def test_a_null_in_a_key_is_a_bad_row_whatever_the_index_allows(
        self, server: SqlServer, table: str
    ) -> None:
        server.execute(f"CREATE TABLE {table} (n int UNIQUE, v int)")
        rows = pa.table({"n": pa.array([1, None, 2], pa.int64()), "v": [7, 8, 9]})
        write(self.sink_type(server.url, table, key="n", bad_rows_to=f"{table}_bad"), rows)
        assert server.rows(f"SELECT n, v FROM {table} ORDER BY n") == [(1, 7), (2, 9)]
        bad = server.rows(f"SELECT reason, {self.quote}constraint{self.quote} FROM {table}_bad")
        assert bad == [("key column 'n' is null", "n")]

    def test_without_a_place_for_it_a_bad_row_ends_the_job_and_nothing_is_written(
        self, server: SqlServer, table: str
    ) -> None:
        server.execute(f"CREATE TABLE {table} (n int, CONSTRAINT small CHECK (n <> 7))")
        with pytest.raises(
            JobFailedError, match=r"refuses a row \(constraint small\): .*The row: {\"n\": 7}"
        ):
            write(self.sink_type(server.url, table), [{"n": n} for n in range(10)])
        assert server.rows(f"SELECT count(*) FROM {table}") == [0]


class SqlTargetCases:
    """Zombies, lost answers, and a killed server."""

    commit_word: ClassVar[bytes]
    """Is in the request that commits."""
    ended: ClassVar[str] = ""
    """What the client says whose connection was ended."""

    def target(self, url: str, table: str, attempt: int) -> Target:
        """Make one for `owner(table, attempt)`, which creates the table, with a column n."""
        raise NotImplementedError

    def claim_alone(self, server: Any, table: str, attempt: int) -> int:
        """Claim the ledger of `owner(table, attempt)`, and end no connection."""
        raise NotImplementedError

    def test_a_writer_that_hangs_inside_its_commit_is_ended_by_the_next(
        self, server: SqlServer, table: str
    ) -> None:
        """It holds the ledger's row locked, and would for ever."""
        zombie, hangs, wakes = self.target(server.url, table, 1), threading.Event(), threading.Event()
        outcome: list[Exception] = []

        def rows() -> Iterator[pa.RecordBatch]:
            yield from batches(1)
            hangs.set()
            wakes.wait(WAIT_S)
            yield from batches(2)

        def commit() -> None:
            try:
                zombie.commit(1, rows())
            except Exception as error:
                outcome.append(error)

        assert zombie.claim() == 0
        thread = threading.Thread(target=commit)
        thread.start()
        assert hangs.wait(WAIT_S)
        newer = self.target(server.url, table, 2)
        assert newer.claim() == 0
        newer.commit(1, batches(1))
        wakes.set()
        thread.join(WAIT_S)
        (error,) = outcome
        assert isinstance(error, Retryable)
        with pytest.raises(Fenced):
            OwnerCommits("out", zombie, Eager(), 0).commit(1, lambda: batches(9))
        assert server.rows(f"SELECT n FROM {table}") == [1]
        newer.close()

    def test_an_older_attempt_that_is_between_two_commits_is_fenced(
        self, server: SqlServer, table: str
    ) -> None:
        older, newer = self.target(server.url, table, 1), self.target(server.url, table, 2)
        assert older.claim() == 0
        older.commit(1, batches(1))
        assert newer.claim() == 1
        with pytest.raises(Retryable, match=self.ended):
            older.commit(2, batches(2))
        with pytest.raises(Fenced):
            older.claim()
        newer.commit(2, batches(3))
        assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 3]
        newer.close()

    def test_one_whose_connection_could_not_be_ended_is_fenced_by_the_ledger(
        self, server: SqlServer, table: str
    ) -> None:
        older = self.target(server.url, table, 1)
        assert older.claim() == 0
        assert self.claim_alone(server, table, 2) == 0
        with pytest.raises(Fenced, match="a newer attempt writes the output of sink 'out', subtask 0"):
            older.commit(1, batches(1))
        assert server.rows(f"SELECT n FROM {table}") == []

    @pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
    def test_a_commit_without_an_answer_is_decided_by_the_ledger(
        self, is_done: bool, server: SqlServer, table: str
    ) -> None:
        """The connection breaks when COMMIT is sent: before the server gets it, or before it has answered."""
        with AnswerProxy(server.port) as proxy:
            patience = Eager()
            target = self.target(server.url_by(proxy.port), table, 1)
            commits = OwnerCommits("out", target, patience, None)
            commits.claim(0)  # which may commit, too
            proxy.swallow(self.commit_word, 1, is_done)
            commits.commit(1, lambda: batches(1, 2))
            commits.commit(2, lambda: batches(3))
            commits.close()
        assert [type(error) for error in patience.errors] == [Indeterminate]
        assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2, 3]

    def test_a_server_that_is_killed_comes_back_with_all_that_was_committed(
        self, server: SqlServer, table: str
    ) -> None:
        commits = OwnerCommits("out", self.target(server.url, table, 1), Eager(), None)
        commits.commit(1, lambda: batches(1))
        server.kill()
        restarting = threading.Thread(target=server.start)
        restarting.start()
        commits.commit(2, lambda: batches(2))
        restarting.join(WAIT_S)
        assert server.rows(f"SELECT n FROM {table} ORDER BY n") == [1, 2]
        commits.close()
