"""SinkKit: a test for each sentence of the contract of sinks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.contracts import CommittingSink, Json, Sink, SinkWriter
from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance.changed_schemas import SCHEMA_CHECKS
from onceflow.runtime.testing.conformance.committers import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.runtime.testing.conformance.crashes import COMMITTER_KILL_CHECKS, KILL_CHECKS, SCENARIOS
from onceflow.runtime.testing.conformance.played_engine import (
    NOTHING,
    Durable,
    PlayedSink,
    open_committer,
    open_writer,
)
from onceflow.runtime.testing.conformance.recoveries import RECOVERY_CHECKS, WRITER_RECOVERY_CHECKS
from onceflow.runtime.testing.conformance.sinks import SINK_CHECKS, SinkUnderTest
from onceflow.testing.kit.kit import Kit, add_tests, die


class SinkTests(Kit):
    """What is the same for both kinds of sinks.

    Rows have a column `n`, an int64, and no two of a test the same; `schema`, `other_schema` and `row` are
    for sinks that want other columns.
    """

    schema: pa.Schema = pa.schema([("n", pa.int64())])
    other_schema: pa.Schema = pa.schema([("n", pa.int64()), ("note", pa.string())])
    """The columns of a changed program."""

    def sink(self) -> Sink:
        """The sink, whose output is where `folder` and `settings` say. Called in every process."""
        raise NotImplementedError(f"{type(self).__qualname__}.sink() has to give the sink under test")

    def visible(self) -> Sequence[int]:
        """The `n` of all rows that a careful reader sees now; none where there is no output yet."""
        raise NotImplementedError(f"{type(self).__qualname__}.visible() has to give what a reader sees")

    def row(self, n: int) -> Mapping[str, Any]:
        """A row that only n has, with values for the columns of `schema` and of `other_schema`; a column
        without a value is null."""
        return {"n": n, "note": f"note {n}"}

    answers_lost: Callable[[], AbstractContextManager[object]] | None = None
    """A method: while the context that it gives lasts, the system does what it is asked, and its answers are
    lost. None: that can't be done, and what needs it is skipped."""

    def played(self) -> PlayedSink:
        """The sink for checks that play the engine."""
        sink = self.sink()
        kind = isinstance(sink, CommittingSink)
        if kind is not isinstance(self, CommittingSinkKit):
            right = "CommittingSinkKit" if kind else "SinkKit"
            raise UsageError(f"{type(self).__qualname__} has to be a {right}, for a {type(sink).__name__}")

        def records(schema: pa.Schema, n: int) -> Records:
            row = {name: self.row(n).get(name) for name in schema.names}
            return Records(pa.RecordBatch.from_pylist([row], schema))

        return PlayedSink(
            sink=sink,
            store=LocalStore(f"{self.folder}/checkpoints"),
            schema=self.schema,
            records=lambda n: records(self.schema, n),
            visible=self.visible,
            other_schema=self.other_schema,
            other_records=lambda n: records(self.other_schema, n),
            lineage=hashlib.sha256(self.folder.encode()).hexdigest()[:16],
            elsewhere=self.elsewhere if self.in_new_processes else None,
            answers_lost=self.answers_lost,
            calls=self.calls,
        )

    def do_in_new_process(self, scenario: str, arguments: Mapping[str, Json]) -> Json:
        self.calls.crash = die
        try:
            return SCENARIOS[scenario](self.played(), arguments)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}; {'; '.join(self.calls.steps)}") from error


class SinkKit(SinkTests):
    """Tests of a sink whose writers commit:

        class TestDatabase(SinkKit):
            def sink(self):
                return Database(f"{self.folder}/output.db")

            def visible(self):
                return [row["n"] for row in read(f"{self.folder}/output.db")]

    A sink with one commit for all its writers has CommittingSinkKit.
    """


class CommittingSinkKit(SinkTests):
    """Tests of a sink with one commit for all its writers (CommittingSink). It is used as SinkKit is."""


def sink_under_test(kit: SinkTests) -> SinkUnderTest:
    played = kit.played()

    def opened(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        return open_writer(played, subtask, parallelism, attempt, Durable(restored, ()), played.schema)

    return SinkUnderTest(opened, played.records, played.visible)


def committing_sink_under_test(kit: SinkTests) -> CommittingSinkUnderTest:
    played = kit.played()

    def restored(attempt: int) -> Durable:
        return NOTHING if attempt == 1 else Durable(1, ())

    return CommittingSinkUnderTest(
        lambda subtask, attempt: open_writer(played, subtask, 2, attempt, restored(attempt), played.schema),
        lambda attempt: open_committer(played, attempt, restored(attempt), played.schema),
        played.records,
        played.visible,
    )


def maker(kit: SinkTests) -> Callable[[], PlayedSink]:
    """Makes cases with fresh outputs; the first is the kit's own."""
    unused = [kit]
    return lambda: (unused.pop() if unused else kit.again()).played()


def _run_sink(kit: SinkTests, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, sink_under_test)


def _run_committing(kit: SinkTests, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, committing_sink_under_test)


def _run_played(kit: SinkTests, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, SinkTests.played)


def _run_kills(kit: SinkTests, check: Callable[..., None]) -> None:
    __tracebackhide__ = True
    kit.run_check(check, maker)


add_tests(SinkTests, RECOVERY_CHECKS, _run_played)
add_tests(SinkTests, SCHEMA_CHECKS, _run_played)
add_tests(SinkTests, KILL_CHECKS, _run_kills)
add_tests(SinkKit, SINK_CHECKS, _run_sink)
add_tests(SinkKit, WRITER_RECOVERY_CHECKS, _run_played)
add_tests(CommittingSinkKit, COMMITTER_CHECKS, _run_committing)
add_tests(CommittingSinkKit, COMMITTER_KILL_CHECKS, _run_kills)
