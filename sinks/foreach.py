"""ForeachSink: rows to a function of the user's, once their checkpoint is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from onceflow.connectors.staged_rows import RowFile, StagedRowsWriter, row_files
from onceflow.runtime.contracts import BatchContext, Committable, PreCommit, SinkContext
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.records import Records
from onceflow.runtime.types.user_functions import function_name, user_error_at, user_function_error


class RowReader(Protocol):
    """Makes of a batch what the user's function takes."""

    def read(self, batch: pa.RecordBatch) -> Any: ...


@dataclass(frozen=True, eq=False)
class ForeachSink:
    """A Sink. Each writer calls the function in its slot, on the commit thread, in the order of the rows.

    The rows wait in the checkpoint folder until their checkpoint is durable. So the function sees no row
    that a restart takes back; and those of the last checkpoint again if it was ended before all of them were
    through.
    """

    function: Callable[..., Any]
    reader: RowReader
    is_per_record: bool
    takes_context: bool = False

    @property
    def plan_note(self) -> str:
        name, what = function_name(self.function), "records" if self.is_per_record else "a batch"
        same = "" if self.is_per_record else ", with the same batch_id"
        return (
            f"at least once: {name} is called when a checkpoint is durable; after a failure {what} may come "
            f"again{same}"
        )

    def check(self, schema: pa.Schema, uid: str) -> None:
        """Rows of any schema can be given to a function."""

    def open_writer(self, context: SinkContext) -> ForeachWriter:
        return ForeachWriter(self, context)


class ForeachWriter:
    """A SinkWriter."""

    def __init__(self, sink: ForeachSink, context: SinkContext) -> None:
        self._sink = sink
        self._context = context
        self._function = own_instance(sink.function, context.uid)
        self._rows = StagedRowsWriter(context)

    def recover(self, committables: Sequence[Committable]) -> None:
        self._context.open_function(self._function)  # here: this is the thread that will call it
        for committable in sorted(committables, key=lambda each: int(each.owner)):
            files = row_files(committable)
            self._hand_over(files, committable.checkpoint_id, int(committable.owner))

    def write(self, records: Records) -> None:
        self._rows.write(records)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        return self._rows.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        self._hand_over(self._rows.promised(checkpoint_id), checkpoint_id, self._context.subtask)
        self._rows.forget(checkpoint_id)

    def close(self) -> None:
        """Nothing is open."""

    def _hand_over(self, files: Iterable[RowFile], checkpoint_id: int, owner: int) -> None:
        context = self._context
        batches = (batch for file in files for batch in file.batches(context.files))
        for part, batch in enumerate(batches):
            if self._sink.is_per_record:
                self._call_each(batch)
                continue
            batch_id = f"{context.lineage}.{context.uid}.{checkpoint_id}.{owner}.{part}"
            told = BatchContext(batch_id, checkpoint_id, owner, part, context.uid, context.job)
            self._call(batch, told)

    def _call_each(self, batch: pa.RecordBatch) -> None:
        function = self._function
        for record in self._sink.reader.read(batch):
            try:
                function(record)
            except Exception as error:
                raise user_function_error(self._context.uid, function, error, None, 0, record) from error

    def _call(self, batch: pa.RecordBatch, told: BatchContext) -> None:
        function, rows = self._function, self._sink.reader.read(batch)
        try:
            function(rows, told) if self._sink.takes_context else function(rows)
        except Exception as error:
            place = f"batch {told.batch_id} of {batch.num_rows} rows"
            raise user_error_at(self._context.uid, function, error, place) from error
