"""What a task does: reads its part of a batch with the source's own reader, in Arrow batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, Source, SourceReader, SplitState
from onceflow.runtime.errors import Fatal, Retryable

_LOG = logging.getLogger(__name__)
_POLL_MS = 200
_RECORDS_MAX = 10_000
_LOOK_S = 0.05
"""How long to wait for a reader that has nothing; it wakes us earlier."""
PATIENCE_S = 120.0


def read_splits(source: Source, splits: Sequence[SplitState], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of these splits up to their ends, with the columns of `schema`. Raises what the reader raises;
    a passing fault for as long as PATIENCE_S is waited out."""
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
                yield _as_declared(fetch.records, schema)
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


def _as_declared(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns that Spark was told."""
    arrays = []
    for wanted in schema:
        column = rows.column(wanted.name)
        if column.null_count and not wanted.nullable:
            raise Fatal(
                f"column {wanted.name!r} is NOT NULL in the schema, and a row has null: leave that out"
            )
        arrays.append(column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
