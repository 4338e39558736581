"""The two ways to write: a stream, each micro-batch once, and a batch, all its rows or none.

Spark makes a writer in a new process of the driver for each micro-batch, sends copies to the tasks
(`write`), and makes another writer in another process to commit. What they share is in the checkpoint
folder and in the messages of the tasks.
"""

from __future__ import annotations

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

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, TopicDescription
from onceflow.connectors.kafka.transactions.held import StagedOutput
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings, RouteName, best_route
from onceflow.connectors.waiting import WaitForSystem
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import CorruptCheckpointError, Fatal, OnceflowError, OptionError
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.kept_commits import COMMITS, described
from onceflow.structured_streaming.micro_batches import check_ledger, ledger_after, tie_uid
from onceflow.structured_streaming.partitions import PartitionedOutput, must_exist
from onceflow.structured_streaming.query_record import QueryRecord, Tie, check_tie
from onceflow.structured_streaming.shared_staging import batch_folder, end_staging, put_sign, sweep
from onceflow.structured_streaming.sink_options import SinkOptions, sink_options
from onceflow.structured_streaming.sink_rows import RowEncoder
from onceflow.structured_streaming.staged_files import Staged, delete_files, files_of, restored, stage
from onceflow.structured_streaming.staging import Folder
from onceflow.structured_streaming.whole_writes import (
    check_unwritten,
    commit_write,
    default_staging,
    sweep_abandoned,
    write_folder,
)
from onceflow.structured_streaming.worker_garbage import spare_imports

_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
"""Spark's class for writers of Arrow batches; None before PySpark 4.1: rows come one by one, as tuples."""

_QUERY_ID = "sql.streaming.queryId"
_ROWS_WORTH_CONNECTIONS = 10_000
"""Fewer are not worth connections of their own to the brokers, nor what those import."""
_BATCH_ID = "streaming.sql.batchId"


class Message(WriterCommitMessage):
    """What a task sends to the driver."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class StreamWriter(_StreamArrowWriter or object):  # type: ignore[misc]  # one of the two
    """See pyspark.sql.datasource.DataSourceStreamArrowWriter."""

    def __init__(self, schema: Any, options: Mapping[str, str]) -> None:
        """In the driver: what can be known to be wrong is raised here, before any task runs. The broker
        is asked when this checkpoint writes there for the first time."""
        spare_imports()
        self._options = sink_options(options, "writeStream")
        RowEncoder(self._options, arrow_schema_of(schema))
        assert self._options.uid is not None
        assert self._options.checkpoint is not None
        self._ledger = self._options.ledger(self._options.uid)
        self._checkpoint = Folder.at(self._options.checkpoint)
        self._record = QueryRecord(self._checkpoint)
        self._query_id = self._record.query_id()
        staging = self._options.staging
        root = Folder.at(staging) if staging else self._record.default_staging
        self._folder = root.child(self._query_id)
        self._tie()
        put_sign(self._folder)

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
        inside = batch_folder(number)
        return Message(
            stage(iterator, self._options, self._folder, inside, query_id, number, ledger_after(number))
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Called in the driver, for all files of one attempt. It may raise though the batch is written: Spark
        runs the batch again, and the ledger knows."""
        staged = _staged(messages)
        files = files_of(staged, self._query_id, batchId)
        if files:
            self._send(
                batchId, files, {topic for each in staged if each is not None for topic in each.topics}
            )
        try:
            sweep(self._folder, batchId)
        except OnceflowError as e:
            _say(f"the staged files of batch {batchId} are left for the next batch to delete: {e}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed, or commit has raised. Of this attempt only the staged files can go: its rerun
        stages its own, if the ledger does not have it."""
        delete_files(_staged(messages), self._folder)

    def _send(self, batch_id: int, files: Sequence[StagedOutput], topics: set[str]) -> None:
        """Make the rows of these files visible, with the connections that the batch before has left. After
        an error they are closed: the next attempt begins with new ones."""
        options = self._options
        committer = COMMITS.take(
            options,
            self._ledger,
            self._query_id,
            _route(files),
            lambda route: (_client(options, route), _patience(options)),
        )
        is_done = False
        try:
            outputs = _outputs(committer.topics(topics), topics, files, self._folder)
            committer.commits.commit(batch_id, outputs, self._record)
            spare_imports()  # the first commit imports what writes to brokers
            is_done = True
        except CorruptCheckpointError as e:
            raise Fatal(_damaged(e)) from e
        finally:
            if is_done:
                COMMITS.give_back(self._ledger, self._query_id, committer)
            else:
                committer.close()

    def _tie(self) -> None:
        """The checkpoint, the uid and the ledger are this query's, or become so."""
        options, uid = self._options, str(self._options.uid)
        found = self._record.tie()
        if found is not None:
            check_tie(found, self._query_id, uid, self._ledger, self._checkpoint.url)
        if found is None or found.checked != options.target():
            ledger, query_id = self._ledger, self._query_id
            _check_broker(
                options, ledger, query_id, lambda entry: check_ledger(entry, ledger, query_id, None)
            )
            self._record.put_tie(Tie(query_id, uid, ledger.transactional_id, ledger.topic, options.target()))


class BatchWriter(DataSourceArrowWriter):
    """See pyspark.sql.datasource.DataSourceArrowWriter. One copy of it goes to the tasks, one to commit."""

    def __init__(self, schema: Any, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise OptionError('a topic can\'t be overwritten: use .mode("append") with onceflow-kafka')
        self._options = sink_options(options, "write")
        RowEncoder(self._options, arrow_schema_of(schema))
        self._write_id = uuid.uuid4().hex
        self._ledger = self._options.ledger(self._options.uid or f"write-{self._write_id}")
        root = Folder.at(self._options.staging) if self._options.staging else default_staging()
        sweep_abandoned(root)
        self._folder = root.child(write_folder(self._write_id))
        ledger, write_id = self._ledger, self._write_id
        _check_broker(self._options, ledger, write_id, lambda entry: check_unwritten(entry, ledger, write_id))
        put_sign(self._folder)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return Message(
            stage(iterator, self._options, self._folder, "rows", self._write_id, 0, ledger_after(0))
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = _staged(messages)
        files = files_of(staged, self._write_id, 0)
        if files:
            topics = {topic for each in staged if each is not None for topic in each.topics}
            client = _client(self._options, _route(files))
            try:
                patience = _patience(self._options)
                known = described(client, topics, patience)
                outputs = _outputs(known, topics, files, self._folder)
                commit_write(client, self._ledger, self._write_id, outputs, patience)
            except CorruptCheckpointError as e:
                raise Fatal(_damaged(e)) from e
            finally:
                client.close()
        end_staging(self._folder)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        end_staging(self._folder)


def stream_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> StreamWriter:
    """The writer for df.writeStream. `overwrite`: output mode complete, each batch's whole result is
    appended. Raises OptionError."""
    if _StreamArrowWriter is None:
        raise OptionError(
            f"writeStream of onceflow-kafka needs PySpark 4.1 or newer, and this is {pyspark.__version__}, "
            "which gives a sink written in Python no Arrow batches of a stream: upgrade, or write batches"
        )
    return StreamWriter(schema, options)


def batch_writer(schema: Any, options: Mapping[str, str], overwrite: bool) -> BatchWriter:
    """The writer for df.write."""
    return BatchWriter(schema, options, overwrite)


def _check_broker(
    options: SinkOptions, ledger: LedgerKey, owner: str, check: Callable[[LedgerEntry], None]
) -> None:
    """Check that the broker is there, lets us in, has the topic, and lets us write the ledger."""
    client = _client(options, "bulk")
    try:
        if options.topic is not None:
            must_exist(client.describe_topics([options.topic]), {options.topic})
        client.ensure_ledger_topic(ledger.topic)
        tie_uid(client, ledger, owner, check, _patience(options))
    finally:
        client.close()


def _outputs(
    known: Mapping[str, TopicDescription], topics: set[str], files: Sequence[StagedOutput], folder: Folder
) -> list[PartitionedOutput]:
    """The staged files, their rows to be sent to the topics as these are. Raises UsageError for one that is
    not there."""
    must_exist(known, topics)
    partitions = {name: topic.partitions for name, topic in known.items()}
    return [PartitionedOutput(restored(file, folder), partitions) for file in files]


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged | None]:
    return [message.staged if isinstance(message, Message) else None for message in messages]


def _route(files: Sequence[StagedOutput]) -> RouteName:
    """How so many rows are best written."""
    return best_route() if sum(file.rows for file in files) >= _ROWS_WORTH_CONNECTIONS else "bulk"


def _client(options: SinkOptions, route: RouteName) -> LibrdkafkaClient:
    return LibrdkafkaClient(options.kafka, ProducerSettings(options.transaction_timeout_ms, route=route))


def _patience(options: SinkOptions) -> WaitForSystem:
    return WaitForSystem("Kafka sink", SystemClock(), _say, options.delivery_timeout_ms, threading.Event())


def _damaged(error: CorruptCheckpointError) -> str:
    return f"{error}. Nothing of the batch was written: start the query again, and it is staged anew"


def _say(sentence: str) -> None:
    if sentence:
        sys.stderr.write(f"onceflow-kafka: {sentence}\n")
