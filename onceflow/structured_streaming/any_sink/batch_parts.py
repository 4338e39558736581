"""What a task does with its rows: it makes them durable where nobody sees them, and names them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import BinaryIO

import pyarrow as pa

from onceflow.connectors.staged_commits.writer import TargetSink
from onceflow.connectors.staged_rows import StagedRowsWriter
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, Sink, SinkContext
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Records
from onceflow.structured_streaming.any_sink.promised_batches import first_attempt
from onceflow.structured_streaming.shared_staging import batch_folder, check_sign, leaving_nothing_if_given_up
from onceflow.structured_streaming.staging import Folder


def checkpoint_of(batch_id: int) -> int:
    """The number of a batch as a sink counts: from 1, since 0 says that nothing was written."""
    return batch_id + 1


@dataclass(frozen=True, slots=True)
class Output:
    """An output of one query, or of one write. Picklable."""

    sink: Sink
    job: str
    lineage: str
    """The query's id, as 32 hexadecimal digits: the ledger of `uid` is its own."""
    uid: str
    schema: pa.Schema
    staging: Folder

    def context(self, batch_id: int, partition: int, attempt: int) -> SinkContext:
        """What a writer gets in a task. Spark does not say how many tasks there are."""
        return SinkContext(
            job=self.job,
            lineage=self.lineage,
            uid=self.uid,
            subtask=partition,
            parallelism=partition + 1,
            attempt=attempt,
            restored_checkpoint_id=batch_id,
            files=PartFiles(self.staging, batch_folder(batch_id)),
            clock=SystemClock(),
            schema=self.schema,
        )


def pre_commit(
    output: Output, batch_id: int, partition: int, batches: Iterable[pa.RecordBatch]
) -> Committable:
    """Take the rows of a task; nothing of them is visible. Raises Fatal if executors don't see the staging
    folder, or if the write is given up meanwhile, and what the sink raises."""
    sink, context = output.sink, output.context(batch_id, partition, first_attempt(batch_id))
    check_sign(output.staging)
    rows = (Records(as_declared(batch, output.schema)) for batch in batches if batch.num_rows)
    with leaving_nothing_if_given_up(output.staging):
        if isinstance(sink, TargetSink):
            settings = sink.commit_settings(context)
            staged = StagedRowsWriter(replace(context, schema=settings.staged_schema))
            for records in rows:
                staged.write(Records(settings.staged(records)))
            return staged.pre_commit(checkpoint_of(batch_id)).stage()
        writer = sink.open_writer(context)
        try:
            writer.recover(())
            for records in rows:
                writer.write(records)
            return writer.pre_commit(checkpoint_of(batch_id)).stage()
        finally:
            writer.close()


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the types that the driver was told: Spark gives times in the session's zone, and a text
    in one of two types."""
    if batch.schema.equals(schema):
        return batch
    if batch.schema.names != schema.names:
        raise Fatal(
            f"a batch has columns {batch.schema.names}, and the query had {schema.names}: start it again"
        )
    arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class PartFiles:
    """StagedFiles of a task: each file has a name of its own, in its batch's folder."""

    def __init__(self, folder: Folder, inside: str) -> None:
        self._folder = folder
        self._inside = inside

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path, file = self._folder.child(self._inside).create_durable(f"{uuid.uuid4().hex}.{name}")
        return f"{self._inside}/{path}", file

    def open(self, path: str) -> BinaryIO:
        return self._folder.open(path)
