"""The rows that Spark gets, made in a task from what its reader fetched.

Apart from the columns' definition, since processes that only plan need nothing of what is imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.bad_records import Tolerance
from onceflow.connectors.formats import Raw
from onceflow.connectors.formats.format import ON_NULL_ADVICE
from onceflow.connectors.kafka.source.row_builder import METADATA, Metadata, RowBuilder
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.contracts import Fetch
from onceflow.runtime.errors import BadRecordError
from onceflow.structured_streaming.corrupt_records import as_text_or_bytes, bad_value_error
from onceflow.structured_streaming.source_columns import VALUE, Columns
from onceflow.structured_streaming.source_offsets import OffsetRange

_TIMESTAMP = pa.timestamp("us", "UTC")
# Names inside a reader that no column of a user's can have.
_INSIDE = "\0"
_KEY = "\0key"
_READ: Mapping[str, Metadata] = {"headers": "headers", "timestampType": "timestamp_kind"}


def row_builder(columns: Columns) -> RowBuilder:
    """Builds the rows of one reader. Bad records come out as dead letters, for rows_of to decide on."""
    wanted = set(columns.kafka.values())
    key = Raw(_KEY).decoder() if "key" in wanted else None
    decoded = _decoded(columns)
    value = columns.value.decoder(frozenset(decoded))
    metadata: list[Metadata] = [name for own, name in _READ.items() if own in wanted]
    fields = [pa.field(_KEY, pa.binary())] if key else []
    fields += list(value.schema)
    fields += [pa.field(_INSIDE + name, *METADATA[name]) for name in metadata]
    tolerance: Tolerance = "none" if isinstance(columns.value, Raw) else "all"
    return RowBuilder(pa.schema(fields), key, value, metadata, tolerance)


def by_split(fetch: Fetch, splits: Sequence[KafkaSplit]) -> Iterator[tuple[str, Fetch]]:
    """The parts of a fetch that are of one split each, by its id. `splits`: those that may be in it, which
    are the last that its reader was given; it may have read the same partitions before."""
    if len(splits) == 1:
        yield splits[0].split_id, fetch
        return
    letters = fetch.dead_letters
    for number, split in enumerate(splits, len(fetch.splits) - len(splits)):
        is_own = fetch.row_split == number
        own_letters = None if letters is None else _letters_of(letters, split)
        if is_own.any() or own_letters is not None:
            yield (
                split.split_id,
                replace(
                    fetch,
                    records=fetch.records.filter(pa.array(is_own)),
                    row_split=fetch.row_split[is_own],
                    offset=None if fetch.offset is None else fetch.offset[is_own],
                    timestamp_ms=None if fetch.timestamp_ms is None else fetch.timestamp_ms[is_own],
                    dead_letters=own_letters,
                ),
            )


def _letters_of(letters: pa.RecordBatch, split: KafkaSplit) -> pa.RecordBatch | None:
    is_topic = pc.equal(letters.column("topic"), split.topic)
    found = letters.filter(pc.and_(is_topic, pc.equal(letters.column("partition"), split.partition)))
    return found if len(found) else None


def rows_of(columns: Columns, fetch: Fetch, where: OffsetRange) -> pa.RecordBatch:
    """The rows of a fetch as Spark gets them. Raises BadRecordError, naming the first bad record."""
    letters = fetch.dead_letters
    if letters is not None and columns.corrupt is None:
        raise _bad_record(letters.slice(0, 1).to_pylist()[0])
    batch = _rows(columns, fetch, where)
    if letters is None:
        return batch
    bad = _corrupt_rows(columns, letters)
    assert fetch.offset is not None, "the reader was opened with_origin"
    offsets = np.concatenate([fetch.offset, letters.column("offset").to_numpy()])
    both = pa.Table.from_batches([batch, bad]).combine_chunks().take(np.argsort(offsets, kind="stable"))
    return both.to_batches()[0]


def _decoded(columns: Columns) -> list[str]:
    if isinstance(columns.value, Raw):
        return [VALUE] if "value" in columns.kafka.values() else []
    return [name for name in columns.schema.names if name not in columns.kafka and name != columns.corrupt]


def _rows(columns: Columns, fetch: Fetch, where: OffsetRange) -> pa.RecordBatch:
    count = len(fetch.row_split)
    own: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: fetch.records.column(_KEY),
        "value": lambda: fetch.records.column(VALUE),
        "topic": lambda: _constant(where.topic, count, pa.string()),
        "partition": lambda: _constant(where.partition, count, pa.int32()),
        "offset": lambda: pa.array(fetch.offset, pa.int64()),
        "timestamp": lambda: _timestamps(fetch.timestamp_ms),
        "timestampType": lambda: _types(fetch.records.column(_INSIDE + "timestamp_kind")),
        "headers": lambda: _headers(fetch.records.column(_INSIDE + "headers")),
    }
    arrays = []
    for field in columns.schema:
        if field.name in columns.kafka:
            array = own[columns.kafka[field.name]]()
        elif field.name == columns.corrupt:
            array = pa.nulls(count, field.type)
        else:
            array = fetch.records.column(field.name)
        if not field.nullable and array.null_count:
            raise _missing(field.name, array, fetch, where)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def _corrupt_rows(columns: Columns, letters: pa.RecordBatch) -> pa.RecordBatch:
    """Nulls for what could not be decoded, the value itself in the column for it."""
    own: dict[str, Callable[[], pa.Array]] = {
        "timestamp": lambda: _timestamps(letters.column("timestamp").fill_null(-1).to_numpy()),
        "headers": lambda: _headers(letters.column("headers")),
    }
    arrays = []
    for field in columns.schema:
        name = columns.kafka.get(field.name)
        if name is not None:
            array = own[name]() if name in own else letters.column(name)
        elif field.name == columns.corrupt:
            array = as_text_or_bytes(letters.column("value"), field.type)
        else:
            array = pa.nulls(len(letters), field.type)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=columns.schema)


def _constant(value: str | int, count: int, arrow: pa.DataType) -> pa.Array:
    """The same value in every row. A range has many batches: they share one array."""
    return _longest(value, 1 << max(0, count - 1).bit_length(), arrow).slice(0, count)


@functools.lru_cache(maxsize=4)
def _longest(value: str | int, count: int, arrow: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


def _timestamps(timestamp_ms: Any) -> pa.Array:
    """Null for a record without a time, which is as old as Kafka 0.9."""
    times = np.asarray(timestamp_ms, np.int64)
    if (times < 0).any():
        return pa.array(times * 1_000, pa.int64(), mask=times < 0).cast(_TIMESTAMP)
    return pa.Array.from_buffers(_TIMESTAMP, len(times), [None, pa.py_buffer(times * 1_000)], 0)


def _types(kinds: pa.Array) -> pa.Array:
    """Spark's numbers: -1 none, 0 CreateTime, 1 LogAppendTime."""
    return pa.array(kinds.to_numpy().astype(np.int32) - 1, pa.int32())


def _headers(headers: pa.Array) -> pa.Array:
    """Null where there are none, as Spark's source has it."""
    has_none = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=has_none)


def _missing(column: str, array: pa.Array, fetch: Fetch, where: OffsetRange) -> BadRecordError:
    """Spark looks for no null where there can't be one, and takes what lies there for the value."""
    assert fetch.offset is not None, "the reader was opened with_origin"
    offset = fetch.offset[pc.index(array.is_null(), True).as_py()]
    return BadRecordError(
        f"column {column!r} is NOT NULL in the schema, and the record in {where.topic}-{where.partition} at "
        f"offset {offset} has none: leave NOT NULL out"
    )


def _bad_record(letter: Mapping[str, Any]) -> BadRecordError:
    where = f"{letter['topic']}-{letter['partition']} at offset {letter['offset']}"
    reason = letter["reason"].removesuffix(ON_NULL_ADVICE)
    return bad_value_error(f"the value of the record in {where}", reason, letter["value"])
