"""What a task does: reads its part of a batch with the source's own reader, in Arrow batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onceflow.connectors import bad_records
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, Source, SourceReader, SplitState
from onceflow.runtime.errors import BadRecordError, Fatal, OptionError, Retryable
from onceflow.runtime.records import RowKind
from onceflow.structured_streaming.corrupt_records import ADVICE, as_text_or_bytes, check_nullable

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
    corrupt: str | None = None
    """The column with what could not be decoded; None: such a record ends the query."""
    of_letters: Mapping[str, str] = {}
    """Columns that have a value even then, and which one of a dead letter's it is."""


def check_kinds(schema: pa.Schema, kind_column: str | None) -> None:
    """Raises OptionError if the schema has no column for the kinds of rows."""
    if kind_column is None:
        return
    if kind_column not in schema.names or schema.field(kind_column).type != pa.string():
        raise OptionError(f"kind_column={kind_column!r} is no STRING column of the schema: add it there")


def check_corrupt(shape: RowShape) -> None:
    """Raises OptionError if a record that can't be decoded can't be a row."""
    if shape.corrupt is not None:
        named = {shape.corrupt, *shape.of_letters}
        check_nullable([field for field in shape.schema if field.name not in named])


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
            if fetch.records.num_rows:
                yield _as_declared(fetch, shape)
            if fetch.dead_letters is not None:
                yield _corrupt_rows(fetch.dead_letters, shape)
    except BadRecordError as error:
        raise type(error)(str(error).replace(bad_records.ADVICE, ADVICE)) from error
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
        if wanted.name == shape.kind_column:
            column = _kinds(fetch)
        elif wanted.name == shape.corrupt:
            column = pa.nulls(fetch.records.num_rows, wanted.type)
        else:
            column = fetch.records.column(wanted.name)
        if column.null_count and not wanted.nullable:
            raise Fatal(
                f"column {wanted.name!r} is NOT NULL in the schema, and a row has null: leave that out"
            )
        arrays.append(column.cast(wanted.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape.schema)


def _corrupt_rows(letters: pa.RecordBatch, shape: RowShape) -> pa.RecordBatch:
    """A row for each: nulls, but for what could not be decoded and what is known of it anyway."""
    first = letters.slice(0, 1).to_pylist()[0]
    _LOG.warning(
        "%d records can't be decoded and are in column %s; the first is of %s, partition %s, place %s: %s",
        *(letters.num_rows, shape.corrupt, first["topic"], first["partition"], first["offset"]),
        first["reason"],
    )
    arrays = []
    for field in shape.schema:
        if field.name == shape.corrupt:
            arrays.append(as_text_or_bytes(letters.column("value"), field.type))
        elif field.name in shape.of_letters:
            arrays.append(_known(letters.column(shape.of_letters[field.name]), field.type))
        else:
            arrays.append(pa.nulls(letters.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=shape.schema)


def _known(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    """A dead letter's time is a number of ms."""
    return values.cast(pa.timestamp("ms", "UTC") if pa.types.is_timestamp(arrow) else arrow).cast(arrow)


def _kinds(fetch: Fetch) -> pa.Array:
    numbers = np.zeros(fetch.records.num_rows, np.int8) if fetch.kind is None else fetch.kind
    return pa.DictionaryArray.from_arrays(pa.array(numbers), _KINDS).cast(pa.string())
