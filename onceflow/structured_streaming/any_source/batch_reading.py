"""What a task does: reads its part of a batch with the source's own reader, in Arrow batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, Source, SourceReader, SplitState
from onceflow.runtime.errors import Fatal, OptionError, Retryable
from onceflow.runtime.records import RowKind

_LOG = logging.getLogger(__name__)
_POLL_MS = 200
_RECORDS_MAX = 10_000
_LOOK_S = 0.05
"""How long to wait for a reader that has nothing; it wakes us earlier."""
PATIENCE_S = 120.0
_KINDS = pa.array([kind.name.lower() for kind in RowKind])


class RowShape(NamedTuple):
    """What Spark was told of the rows."""

    schema: pa.Schema
    kind_column: str | None = None
    """The column with what a row does: `insert`, `update_before`, `update_after`, `delete`."""


def check_kinds(schema: pa.Schema, kind_column: str | None) -> None:
    """Raises OptionError if the schema has no column for the kinds of rows."""
    if kind_column is None:
        return
    if kind_column not in schema.names or schema.field(kind_column).type != pa.string():
        raise OptionError(f"kind_column={kind_column!r} is no STRING column of the schema: add it there")


def read_splits(source: Source, splits: Sequence[SplitState], shape: RowShape) -> Iterator[pa.RecordBatch]:
    """The rows of these splits up to their ends, as Spark was told of them. Raises what the reader raises; a
    passing fault for as long as PATIENCE_S is waited out."""
    woken = threading.Event()
    context = ReaderContext(
        job="structured-streaming",
        uid="source",
        subtask=0,
        attempt=0,
        clock=SystemClock(),
        on_wait=lambda reason: _LOG.warning("%s", reason) if reason else None,
        wake=woken.set,
    )
    reader = source.open_reader(context)
    try:
        reader.add_splits(splits)
        for fetch in _fetches(reader, {split.split_id for split in splits}, woken):
            assert fetch.dead_letters is None, "without a sink for them a bad record is an error"
            if fetch.records.num_rows:
                yield _as_declared(fetch, shape)
    finally:
        reader.close()


def _fetches(reader: SourceReader, unfinished: set[str], woken: threading.Event) -> Iterator[Fetch]:
    moved_at_s = time.monotonic()
    while unfinished:
        woken.clear()
        try:
            fetch = reader.poll(_POLL_MS, _RECORDS_MAX)
        except Retryable as fault:
            if time.monotonic() - moved_at_s >= PATIENCE_S:
                raise
            _LOG.warning("%s; trying again", fault)
            fetch = None
        if fetch is None:
            woken.wait(_LOOK_S)
            continue
        moved_at_s = time.monotonic()
        yield fetch
        unfinished -= fetch.finished


def _as_declared(fetch: Fetch, shape: RowShape) -> pa.RecordBatch:
    arrays = []
    for wanted in shape.schema:
        column = _kinds(fetch) if wanted.name == shape.kind_column else fetch.records.column(wanted.name)
        if column.null_count and not wanted.nullable:
            raise Fatal(
                f"column {wanted.name!r} is NOT NULL in the schema, and a row has null: leave that out"
            )
        arrays.append(column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape.schema)


def _kinds(fetch: Fetch) -> pa.Array:
    numbers = np.zeros(fetch.records.num_rows, np.int8) if fetch.kind is None else fetch.kind
    return pa.DictionaryArray.from_arrays(pa.array(numbers), _KINDS).cast(pa.string())
