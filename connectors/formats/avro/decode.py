"""Avro values to columns: by schema id all at once, and one by one only what surprises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.avro.column_walk import ColumnWalk
from onceflow.connectors.formats.avro.lanes import PADDING, Datums, Lanes
from onceflow.connectors.formats.avro.plan import Read, UnreadableSchemaError, plan
from onceflow.connectors.formats.avro.rows import BadDatumError, row_reader
from onceflow.connectors.formats.avro.schema.nodes import Node
from onceflow.connectors.formats.avro.schema.target import Target
from onceflow.connectors.formats.format import (
    NO_VALUE,
    BadValue,
    Decoded,
    NotFlatError,
    Values,
    as_binary,
    rows_without_columns,
)
from onceflow.connectors.formats.registry.schemas import Schemas, UnknownSchemaError
from onceflow.connectors.formats.registry.wire_format import (
    HEADER_BYTES,
    one_schema_id,
    read_headers,
    why_no_header,
)
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Int64s

if TYPE_CHECKING:
    from onceflow.connectors.formats.avro.compiled.decode import FlatWalk

OnNull = Literal["error", "skip", "nulls"]
_PLAIN = 'plain datums: Avro(..., registry=None, framing="none")'


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of a batch's good rows: where they are among the values, and their columns."""

    rows: Int64s
    columns: list[pa.Array]


@dataclass(frozen=True, slots=True)
class _Values:
    """Values that lie one behind the other, and where."""

    array: pa.Array
    datums: Datums
    begin: Int64s
    end: Int64s


class AvroDecoder:
    """See Decoder. `schemas`: where the writers' schemas are, for values in Confluent's wire format; or
    the one schema of plain datums."""

    def __init__(self, targets: Sequence[Target], schemas: Schemas[Node] | Node, on_null: OnNull) -> None:
        self._targets = targets
        self._schema = pa.schema([target.field for target in targets])
        self._on_null = on_null
        self._schemas = None if isinstance(schemas, Node) else schemas
        self._is_compiled = ops().are_compiled
        if self._is_compiled:
            from onceflow.connectors.formats.avro.compiled.decode import compile_loops

            compile_loops()
        self._plain = self._reader_of(schemas) if isinstance(schemas, Node) else None
        self._readers: dict[int, _Reader | str] = {}

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        """Raises Retryable if a schema has to be fetched and its registry stays away, Fatal if that denies
        access."""
        array = as_binary(values)
        if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of bytes objects
            array = array.cast(pa.large_binary()).combine_chunks()
        count = len(array)
        if not count:
            return Decoded(self._batch([_Part(np.empty(0, np.int64), self._nulls(0))]), None)
        found = _values(array)
        parts: list[_Part] = []
        bad: list[BadValue] = []
        for schema_id, rows in self._by_schema(found, parts, bad):
            reader = self._plain or self._reader(schema_id)
            if isinstance(reader, str):
                bad += [BadValue(row, reader) for row in rows.tolist()]
            else:
                reader.read(found, rows, HEADER_BYTES if self._plain is None else 0, parts, bad)
        batch = self._batch(parts)
        if batch.num_rows == count:
            return Decoded(batch, None)
        good = np.sort(np.concatenate([part.rows for part in parts])) if parts else np.empty(0, np.int64)
        return Decoded(batch, good, sorted(bad))

    def _by_schema(self, found: _Values, parts: list[_Part], bad: list[BadValue]) -> list[tuple[int, Int64s]]:
        """The values of each schema id. What has no id goes to `parts` or `bad`."""
        rows: Int64s = np.arange(len(found.array))
        if found.array.null_count:
            is_null = np.asarray(found.array.is_null())
            absent, rows = np.flatnonzero(is_null), np.flatnonzero(~is_null)
            if self._on_null == "nulls":
                parts.append(_Part(absent, self._nulls(len(absent))))
            elif self._on_null == "error":
                bad += [BadValue(row, NO_VALUE) for row in absent.tolist()]
        if self._plain is not None:
            return [(0, rows)]
        begin, end = found.begin[rows], found.end[rows]
        same = one_schema_id(found.datums.words, begin, end) if len(rows) else None
        if same is not None:
            return [(same, rows)]
        ids, has_id = read_headers(found.datums.words, begin, end)
        bad += [
            BadValue(row, why_no_header(found.array[row].as_py(), "Avro", _PLAIN))
            for row in rows[~has_id].tolist()
        ]
        ids, rows = ids[has_id], rows[has_id]
        return [(schema_id, rows[ids == schema_id]) for schema_id in np.unique(ids).tolist()]

    def _reader(self, schema_id: int) -> _Reader | str:
        """How to read the records of a schema, or why they are bad."""
        known = self._readers.get(schema_id)
        if known is not None:
            return known
        assert self._schemas is not None
        try:
            reader: _Reader | str = self._reader_of(self._schemas.schema_of(schema_id))
        except UnknownSchemaError as error:
            return str(error)  # not kept: it may be registered later
        except UnreadableSchemaError as error:
            reader = f"schema {schema_id} can't be read: {error}"
        self._readers[schema_id] = reader
        return reader

    def _reader_of(self, writer: Node) -> _Reader:
        return _Reader(plan(writer, self._targets), self._is_compiled)

    def _nulls(self, count: int) -> list[pa.Array]:
        return [pa.nulls(count, field.type) for field in self._schema]

    def _batch(self, parts: list[_Part]) -> pa.RecordBatch:
        """All parts, in the order of the values."""
        if not len(self._schema):
            return rows_without_columns(sum(len(part.rows) for part in parts))
        if not parts:
            return pa.RecordBatch.from_arrays(self._nulls(0), schema=self._schema)
        columns = parts[0].columns
        if len(parts) > 1:
            order = pa.array(np.argsort(np.concatenate([part.rows for part in parts])))
            together = zip(*(part.columns for part in parts), strict=True)
            columns = [pa.concat_arrays(pieces).take(order) for pieces in together]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


class _Reader:
    """Reads datums of one writer's schema."""

    def __init__(self, read: Read, is_compiled: bool) -> None:
        self._read = read
        self._flat = _flat_walk(read) if is_compiled else None
        self._read_row = row_reader(read)
        self._types = [] if read.arrow is None else [field.type for field in read.arrow]

    def read(
        self, found: _Values, rows: Int64s, skipped: int, parts: list[_Part], bad: list[BadValue]
    ) -> None:
        """Reads these values, from their byte `skipped` on, into parts and bad ones."""
        everything = len(rows) == len(found.begin)
        begin, end = (found.begin, found.end) if everything else (found.begin[rows], found.end[rows])
        lanes = Lanes(begin + skipped, end.copy(), np.ones(len(rows), np.bool_))
        if self._flat is not None:
            columns = self._flat.columns(found.datums, lanes)
        else:
            columns = ColumnWalk(found.datums).columns(self._read, lanes)
        if lanes.is_sure.all():
            parts.append(_Part(rows, columns))
            return
        sure = pa.array(lanes.is_sure)
        parts.append(_Part(rows[lanes.is_sure], [column.filter(sure) for column in columns]))
        self._read_doubtful(found.array, rows[~lanes.is_sure], skipped, parts, bad)

    def _read_doubtful(
        self, array: pa.Array, rows: Int64s, skipped: int, parts: list[_Part], bad: list[BadValue]
    ) -> None:
        good: list[int] = []
        values: list[list[Any]] = []
        for row in rows.tolist():
            try:
                values.append(self._read_row(array[row].as_py()[skipped:]))
            except (BadDatumError, RecursionError) as error:
                bad.append(BadValue(row, str(error)))
            else:
                good.append(row)
        if good:
            columns = [
                pa.array(list(cells), t)
                for cells, t in zip(zip(*values, strict=True), self._types, strict=True)
            ]
            parts.append(_Part(np.array(good, np.int64), columns))


def _flat_walk(read: Read) -> FlatWalk | None:
    """Compiled loops, if they know records of this kind."""
    from onceflow.connectors.formats.avro.compiled.decode import FlatWalk

    try:
        return FlatWalk(read)
    except NotFlatError:
        return None


def _values(array: pa.Array) -> _Values:
    """Where the values are. Their bytes are copied once, so that some more after the last are readable."""
    _, offsets, data = array.buffers()
    kind = np.int64 if array.type == pa.large_binary() else np.int32
    ends: npt.NDArray[Any] = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    first, last = int(ends[0]), int(ends[-1])
    padded = np.zeros(last - first + PADDING, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, np.uint8, last - first, first)
    places = ends.astype(np.int64) - first
    return _Values(array, Datums(padded), places[:-1], places[1:])
