"""Writing a savepoint from a DataFrame: tasks stage their rows beside it, the driver makes the state of all.

A key's rows may be in any task, so the state is put together once, in the driver's Python, in memory. There
is a savepoint when `savepoint.json` is created, which is the last thing that happens.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.savepoints.taking import check_is_free
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.state_tables.writer import write_state
from onceflow.structured_streaming.arrow_types import arrow_schema_of
from onceflow.structured_streaming.state_options import StateToWrite, state_to_write

STAGED = "staged"


@dataclass
class Staged(WriterCommitMessage):
    """A task's rows: an Arrow IPC stream at this path of the target."""

    path: str


class StateWriter(DataSourceArrowWriter):
    """See pyspark.sql.datasource.DataSourceArrowWriter. One copy of it goes to the tasks, one to commit."""

    def __init__(self, schema: Any, options: Mapping[str, str]) -> None:
        self._given: StateToWrite = state_to_write(options)
        self._schema = schema
        self._folder = f"{STAGED}/{uuid.uuid4().hex}"
        check_is_free(open_store(self._given.path))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        path = f"{self._folder}/{uuid.uuid4().hex}.arrows"  # a task may run twice at once
        schema = arrow_schema_of(self._schema)
        with open_store(self._given.path).create_file(path) as file, pa.ipc.new_stream(file, schema) as out:
            for batch in iterator:
                out.write_batch(batch.cast(schema))
        return Staged(path)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        given, store = self._given, open_store(self._given.path)
        paths = _paths(messages)
        batches: list[pa.RecordBatch] = []
        for path in paths:
            with store.open(path) as file:
                batches += pa.ipc.open_stream(file)
        write_state(
            given.path,
            given.operator,
            given.state,
            pa.Table.from_batches(batches, arrow_schema_of(self._schema)),
            keys=given.key_columns,
            kind=given.kind,
            base=given.base,
            max_parallelism=given.max_parallelism,
        )
        self._delete(paths)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._delete(_paths(messages))

    def _delete(self, paths: list[str]) -> None:
        store = open_store(self._given.path)
        with contextlib.suppress(OSError, OnceflowError):
            store.delete([*paths, *(status.path for status in store.list(self._folder))])
        if isinstance(store, LocalStore):
            store.remove_empty_folders(STAGED)


def _paths(messages: list[WriterCommitMessage | None]) -> list[str]:
    return [message.path for message in messages if isinstance(message, Staged)]
