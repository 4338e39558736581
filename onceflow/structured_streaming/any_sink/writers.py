"""The two ways to write to any sink: a stream, each micro-batch once, and a batch, all its rows once.

Spark makes a writer in a process of the driver for each micro-batch, sends copies to the tasks (`write`), and
makes another writer in another process to commit. What they share is in the checkpoint folder and in the
messages of the tasks.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from onceflow.connectors.waiting import Patience, WaitForSystem
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import (
    CorruptCheckpointError,
    Fatal,
    Fenced,
    OnceflowError,
    OptionError,
    UsageError,
)
from onceflow.structured_streaming.any_sink.batch_commits import Commits, commit_batch, open_commits
from onceflow.structured_streaming.any_sink.batch_parts import Output, pre_commit
from onceflow.structured_streaming.any_sink.promised_batches import PromisedBatches
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat
from onceflow.structured_streaming.any_sink.sink_tie import SinkTie, is_tied, put_tie
from onceflow.structured_streaming.any_sink.write_options import WriteOptions, write_options
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.query_record import FOLDER, QueryRecord
from onceflow.structured_streaming.shared_staging import end_staging, put_sign, sweep
from onceflow.structured_streaming.staging import Folder
from onceflow.structured_streaming.whole_writes import default_staging, sweep_abandoned, write_folder
from onceflow.structured_streaming.worker_garbage import spare_imports

_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
"""Spark's class for writers of Arrow batches; None before PySpark 4.1: rows come one by one, as tuples."""

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class Message(WriterCommitMessage):
    """What a task sends to the driver."""

    def __init__(self, query_id: str, batch_id: int, part: Committable) -> None:
        self.query_id = query_id
        self.batch_id = batch_id
        self.part = part


class StreamWriter(_StreamArrowWriter or object):  # type: ignore[misc]  # one of the two
    """See pyspark.sql.datasource.DataSourceStreamArrowWriter."""

    def __init__(self, form: SinkFormat, schema: Any, options: Mapping[str, str]) -> None:
        """In the driver: what can be known to be wrong is raised here, before any task runs. The system that
        is written to is asked when this checkpoint writes there for the first time."""
        spare_imports()
        given = write_options(form, options, "writeStream")
        assert given.checkpoint is not None
        self._name = form.name
        self._checkpoint = Folder.at(given.checkpoint)
        record = QueryRecord(self._checkpoint)
        self._query_id = record.query_id()
        root = Folder.at(given.staging) if given.staging else record.default_staging
        lineage = self._query_id.replace("-", "")
        self._output = _output(given, schema, self._query_id, lineage, root.child(self._query_id))
        self._folder = self._checkpoint.child(FOLDER)
        tie = SinkTie(self._query_id, given.uid, form.name)
        if not is_tied(self._folder, tie):
            self._check_system()
            put_tie(self._folder, tie)
        put_sign(self._output.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        spare_imports()
        context = TaskContext.get()
        assert context is not None, "Spark calls write in a task"
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query_id is None or query_id != self._query_id or batch_id is None:
            raise Fatal(
                f"checkpointLocation {self._checkpoint.url} is query {self._query_id}'s, but this is query "
                f"{query_id}: give the query's own checkpoint folder, as a URL"
            )
        number = int(batch_id)
        return Message(query_id, number, pre_commit(self._output, number, context.partitionId(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Called in the driver, for all parts of one attempt. It may raise though the batch is written: Spark
        runs the batch again, and what was promised is found."""
        parts = _parts(messages, self._query_id, batchId)
        promises = PromisedBatches(self._folder)
        with _open(self._output, batchId, promises, self._say) as commits:
            is_mine = commit_batch(commits, promises, batchId, parts)
        if not is_mine:
            self._say(f"batch {batchId} was promised by an earlier attempt: its rows are written, not these")
        try:
            sweep(self._output.staging, batchId)
        except OnceflowError as error:
            self._say(f"the staged files of batch {batchId} are left for the next batch to delete: {error}")
        spare_imports()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed, or commit has raised. If all tasks have ended well commit may have promised what
        they made, so that is left for the batch to sweep, once it is done."""
        if any(message is None for message in messages):
            for message in messages:
                for path in message.part.paths if isinstance(message, Message) else ():
                    with contextlib.suppress(OnceflowError):  # swept with the batch
                        self._output.staging.delete(path)

    def _check_system(self) -> None:
        """Raises what is wrong with the system that is written to, before anything is staged."""
        with _open(self._output, 0, PromisedBatches(self._folder), self._say) as commits:
            try:
                committed = commits.committed()
            except Fenced:
                committed = 1
        if committed:
            raise UsageError(
                f"query {self._query_id} has written under uid {self._output.uid!r}, but its checkpoint "
                f"{self._checkpoint.url} has no folder {FOLDER}, which says what: restore it, or start with "
                "a new checkpoint folder"
            )

    def _say(self, sentence: str) -> None:
        _say(self._name, sentence)


class BatchWriter(DataSourceArrowWriter):
    """See pyspark.sql.datasource.DataSourceArrowWriter. One copy of it goes to the tasks, one to commit.

    A write is a query of one batch. With a uid it is the same one whenever it is tried: what was promised is
    in the staging folder, and what is committed is in the ledger.
    """

    def __init__(self, form: SinkFormat, schema: Any, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise OptionError(f'{form.name} only adds: use .mode("append")')
        given = write_options(form, options, "write")
        self._name = form.name
        self._is_named = given.is_named
        root = Folder.at(given.staging) if given.staging else default_staging()
        sweep_abandoned(root)
        if given.is_named:
            lineage = hashlib.sha256(f"{form.name} {given.uid}".encode()).hexdigest()[:32]
            folder = f"write-of-{lineage}"
        else:
            lineage = uuid.uuid4().hex
            folder = write_folder(lineage)
        self._output = _output(given, schema, f"write {given.uid}", lineage, root.child(folder))
        with _open(self._output, 0, PromisedBatches(self._output.staging), self._say) as commits:
            self._check_unwritten(commits)
        put_sign(self._output.staging)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = TaskContext.get()
        assert context is not None, "Spark calls write in a task"
        return Message(self._output.lineage, 0, pre_commit(self._output, 0, context.partitionId(), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        parts = _parts(messages, self._output.lineage, 0)
        promises = PromisedBatches(self._output.staging)
        with _open(self._output, 0, promises, self._say) as commits:
            is_mine = commit_batch(commits, promises, 0, parts)
        if not is_mine:
            self._say(
                f"an earlier try of write {self._output.uid!r} was cut off: its rows are written, not these"
            )
        end_staging(self._output.staging)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed, or commit has raised. What may be promised under a uid stays, for who tries
        again."""
        if not self._is_named:
            end_staging(self._output.staging)

    def _check_unwritten(self, commits: Commits) -> None:
        try:
            if not commits.committed():
                return
            end_staging(self._output.staging)  # of a try that was killed after its commit
        except Fenced:  # the attempts of what was written are forgotten with its staging folder
            pass
        raise UsageError(
            f"write {self._output.uid!r} of {self._name} is there already, or another try is under way: "
            "a uid names one write, which happens once. Nothing was written. To write more rows give another "
            "uid, or none"
        )

    def _say(self, sentence: str) -> None:
        _say(self._name, sentence)


def stream_writer(form: SinkFormat, schema: Any, options: Mapping[str, str]) -> StreamWriter:
    """The writer for df.writeStream. Raises OptionError."""
    if _StreamArrowWriter is None:
        raise OptionError(
            f"writeStream of {form.name} needs PySpark 4.1 or newer, and this is {pyspark.__version__}, "
            "which gives a sink written in Python no Arrow batches of a stream: upgrade, or write batches"
        )
    return StreamWriter(form, schema, options)


def _output(given: WriteOptions, schema: Any, job: str, lineage: str, staging: Folder) -> Output:
    rows = arrow_schema_of(schema)
    given.sink.check(rows, given.uid)
    return Output(given.sink, job, lineage, given.uid, rows, staging)


@contextlib.contextmanager
def _open(
    output: Output, batch_id: int, promises: PromisedBatches, say: Callable[[str], None]
) -> Iterator[Commits]:
    """The commits of an output. Raises Fatal for a damaged file, with what it means."""

    def new_patience(who: str, give_up_after_ms: int) -> Patience:
        return WaitForSystem(who, SystemClock(), say, give_up_after_ms, threading.Event())

    with contextlib.closing(open_commits(output, batch_id, promises, new_patience)) as commits:
        try:
            yield commits
        except CorruptCheckpointError as error:
            raise Fatal(
                f"{error}: it has rows that are promised and not written yet; restore the staging folder, or "
                "start with a new checkpoint folder, which writes again what the source gives"
            ) from error


def _parts(messages: Sequence[WriterCommitMessage | None], query_id: str, batch_id: int) -> list[Committable]:
    """The parts of one attempt at a batch, in the order of its partitions. Raises Fatal if a task's is
    missing, or another batch's."""
    found = []
    for message in messages:
        if not isinstance(message, Message):
            raise Fatal(f"a task of batch {batch_id} has staged nothing: nothing of the batch was written")
        if (message.query_id, message.batch_id) != (query_id, batch_id):
            raise Fatal(
                f"batch {batch_id} of query {query_id} got a part of batch {message.batch_id} of query "
                f"{message.query_id}: nothing of it was written"
            )
        found.append(message.part)
    return found


def _say(name: str, sentence: str) -> None:
    if sentence:
        sys.stderr.write(f"{name}: {sentence}\n")
