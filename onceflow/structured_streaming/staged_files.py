"""What a task stages: one Arrow file with a checksum, under a name that no other attempt has."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.kafka.transactions.held import HeldOutput, RestoredOutput, StagedOutput
from onceflow.runtime.errors import Fatal, OnceflowError
from onceflow.structured_streaming.shared_staging import check_sign, leaving_nothing_if_given_up
from onceflow.structured_streaming.sink_options import SinkOptions
from onceflow.structured_streaming.sink_rows import RowEncoder
from onceflow.structured_streaming.staging import Folder

MEMORY_BYTES_MAX = 0
"""Rows go to the file as they come."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What a task tells the driver. `file` is None if it had no rows."""

    query_id: str
    batch_id: int
    file: StagedOutput | None
    topics: frozenset[str]


def stage(
    batches: Iterable[pa.RecordBatch],
    options: SinkOptions,
    folder: Folder,
    inside: str,
    query_id: str,
    batch_id: int,
    value: int,
) -> Staged:
    """Encode the rows of a task into one file of `folder`/`inside`; `value` is the ledger's with them.

    Holds one batch at a time. A file that is left by an exception is swept later. Raises Fatal, with
    nothing left, if the write is given up meanwhile: Spark tells the driver that another task has failed
    while this one still runs.
    """
    check_sign(folder)
    with leaving_nothing_if_given_up(folder):
        held = HeldOutput(_Named(folder, inside), MEMORY_BYTES_MAX)
        encoder: RowEncoder | None = None
        topics: set[str] = set()
        for batch in batches:
            if not batch.num_rows:
                continue
            encoder = encoder or RowEncoder(options, batch.schema)
            rows = encoder.encode(batch)
            if options.topic is None:
                topics.update(rows["topic"].unique().to_pylist())
            held.add(rows)
        if not held.rows:
            return Staged(query_id, batch_id, None, frozenset())
        held.freeze(value)
        return Staged(
            query_id,
            batch_id,
            held.stage(),
            frozenset(topics or {options.topic} - {None}),  # type: ignore[arg-type]
        )


def files_of(messages: Sequence[Staged | None], query_id: str, batch_id: int) -> list[StagedOutput]:
    """The files of one attempt at a batch. Raises Fatal if a task's is missing, or another batch's."""
    found = []
    for message in messages:
        if message is None:
            raise Fatal(f"a task of batch {batch_id} has staged nothing: nothing of the batch was written")
        if (message.query_id, message.batch_id) != (query_id, batch_id):
            raise Fatal(
                f"batch {batch_id} of query {query_id} got a file of batch {message.batch_id} of query "
                f"{message.query_id}: nothing of it was written"
            )
        if message.file is not None:
            found.append(message.file)
    return found


def delete_files(messages: Sequence[Staged | None], folder: Folder) -> None:
    """Delete the files of an attempt that has failed; the rerun stages its own."""
    for message in messages:
        if message is not None and message.file is not None:
            try:
                folder.delete(message.file.path)
            except OnceflowError:
                return  # swept with the batch


def restored(file: StagedOutput, folder: Folder) -> RestoredOutput:
    """A staged file as an Output that transactions.py can send."""
    return RestoredOutput(file, folder)


class _Named:
    """StagedFiles with a name of its own for each file."""

    def __init__(self, folder: Folder, inside: str) -> None:
        self._folder = folder
        self._inside = inside

    def create(self, name: str) -> tuple[str, pa.PythonFile]:
        path, file = self._folder.child(self._inside).create(f"{uuid.uuid4().hex}.arrows")
        return f"{self._inside}/{path}", file

    def open(self, path: str) -> pa.PythonFile:
        return self._folder.open(path)
