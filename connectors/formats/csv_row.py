"""CsvRow: a line of values between commas, one in each value (RFC 4180).

What is a good value:

    its columns      in the order of the type's fields, or of `columns`; with header=True a line with their
                     names comes first, in any order, and others may be there
    a line           exactly one; it may end with a line end, and one in quotes belongs to its cell
    a cell           as Arrow reads its type: digits within range, RFC 3339, true or false; quotes around what
                     holds a delimiter, and twice for one
    an empty cell    null, unless it is in quotes; bad where null may not be, but text, which is empty then
    text             UTF-8
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from onceflow.connectors.formats.csv_cells import cells_of, typed_cells
from onceflow.connectors.formats.format import (
    NO_VALUE,
    BadValue,
    Decoded,
    Decoder,
    EncodeError,
    Encoder,
    Values,
    as_list,
    rows_without_columns,
)
from onceflow.connectors.formats.wire_columns import Wire, WireDecoder
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType

OnNull = Literal["error", "skip"]
_ODD = re.compile(rb'["\r\n]')
"""What makes a value be read alone: it could be two lines, or half of one."""


@explained
@dataclass(frozen=True)
class CsvRow:
    """`CsvRow(Purchase)` reads and writes the columns of a record type or an Arrow schema; `CsvRow()` writes
    any rows without nested columns.

    `columns`: the names of the cells, in order; a name that is not a field is skipped; None: the fields.
    `header`: each value has a line with the names above its own. `on_null` says what a missing value
    (a Kafka tombstone) means: "error": a bad record; "skip": no row.

    Raises OptionError at once for a type that a cell can't hold.
    """

    of: type | pa.Schema | None = None
    delimiter: str = ","
    columns: Sequence[str] | None = None
    header: bool = False
    on_null: OnNull = "error"
    _described: RecordType | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.delimiter.encode()) != 1 or self.delimiter in '"\n\r':
            raise OptionError(
                f"delimiter={self.delimiter!r}: it has to be one character, and no quote or line end"
            )
        if self.on_null not in ("error", "skip"):
            raise OptionError(f'on_null={self.on_null!r}: write "error" or "skip"')
        if self.header and self.columns is not None:
            raise OptionError("header=True: the names are in each value; leave out columns=")
        if self.of is None:
            return
        if not isinstance(self.of, pa.Schema):
            if not is_record_type(self.of):
                raise OptionError(f"CsvRow({self.of!r}): give a dataclass, a NamedTuple or a pyarrow.Schema")
            object.__setattr__(self, "_described", describe_record(self.of))
        schema = self._schema_or_raise()
        _check(schema, OptionError)
        for name in schema.names if self.columns is not None else ():
            if name not in (self.columns or ()):
                raise OptionError(f"columns= lacks {name!r}{nearest(name, self.columns or ())}")

    @property
    def schema(self) -> pa.Schema | None:
        return self._described.schema if self._described is not None else self.of

    @property
    def record_type(self) -> type | None:
        of: Any = self.of
        return None if of is None or isinstance(of, pa.Schema) else of

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        schema = self._schema_or_raise()
        names = list(self.columns) if self.columns is not None else schema.names
        wanted = pa.schema([f for f in schema if columns is None or f.name in columns])
        decoder = CsvRowDecoder(wanted, None if self.header else names, self.delimiter, self.on_null)
        if self._described is None or self._described.is_plain:
            return decoder
        fields = [f for f in self._described.fields if f.name in wanted.names]
        return WireDecoder(decoder, wanted, [f.type for f in fields], Wire())

    def encoder(self, schema: pa.Schema) -> Encoder:
        _check(schema, GraphError)
        return CsvRowEncoder(schema, self.delimiter, self.header)

    def _schema_or_raise(self) -> pa.Schema:
        schema = self.schema
        if schema is None:
            raise OptionError(
                "CsvRow() without a type can only write; to read, say what is in it: CsvRow(Purchase)"
            )
        return schema


def _check(schema: pa.Schema, error: type[OptionError] | type[GraphError]) -> None:
    is_ = pa.types
    for each in schema:
        if is_.is_nested(each.type) or is_.is_binary(each.type) or is_.is_duration(each.type):
            raise error(
                f"column {each.name!r} is {each.type}, for which CSV has no form: leave it out, or "
                "make text of it"
            )


class CsvRowDecoder:
    """See Decoder."""

    def __init__(
        self, schema: pa.Schema, names: Sequence[str] | None, delimiter: str, on_null: OnNull
    ) -> None:
        """`names`: of the cells; None: each value has them in its first line."""
        self._schema = schema
        self._names = None if names is None else list(names)
        self._delimiter = delimiter
        self._on_null = on_null
        self._convert = cells_of(schema)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        """Decode all lines at once; one by one only if one of them is odd or bad."""
        listed = as_list(values)
        if (
            self._names is not None
            and listed
            and all(v is not None and v.strip() and not _ODD.search(v) for v in listed)
        ):
            try:
                return Decoded(self._rows(b"\n".join(listed), len(listed)), None)  # type: ignore[arg-type]
            except (pa.ArrowInvalid, _BadLineError):
                pass
        good: list[pa.RecordBatch] = []
        rows: list[int] = []
        bad: list[BadValue] = []
        for row, value in enumerate(listed):
            if value is None:
                if self._on_null == "error":
                    bad.append(BadValue(row, NO_VALUE))
                continue
            try:
                good.append(self._rows(value, 1))
                rows.append(row)
            except (pa.ArrowInvalid, pa.ArrowKeyError, _BadLineError) as error:
                bad.append(BadValue(row, _reason(error)))
        return Decoded(self._together(good, len(rows)), np.array(rows, np.int64), bad)

    def _together(self, good: list[pa.RecordBatch], count: int) -> pa.RecordBatch:
        if not len(self._schema):
            return rows_without_columns(count)
        if not good:
            return pa.RecordBatch.from_pylist([], self._schema)
        columns = [pa.concat_arrays([b.column(i) for b in good]) for i in range(len(self._schema))]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _rows(self, text: bytes, count: int) -> pa.RecordBatch:
        """Parse lines to as many rows. Raises ArrowInvalid or _BadLineError if they are not so many."""
        if not text.strip():
            raise _BadLineError("the value is blank")
        if self._names is None:
            _refuse_double_names(text, self._delimiter)
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            pa_csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(text) + 1),
            pa_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=b'"' in text, ignore_empty_lines=False
            ),
            self._convert,
        )
        if table.num_rows != count:
            raise _BadLineError(f"it has {table.num_rows} lines of values, and one is wanted")
        arrays = []
        for each in self._schema:
            array = table.column(each.name).combine_chunks()
            if array.null_count and not each.nullable:
                if each.type not in (pa.string(), pa.large_string()):
                    raise _BadLineError(f"the cell {each.name!r} is empty, and may not be null")
                array = pc.fill_null(array, "")
            arrays.append(typed_cells(array, each))
        if not arrays:
            return rows_without_columns(count)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class CsvRowEncoder:
    """See Encoder."""

    def __init__(self, schema: pa.Schema, delimiter: str, header: bool) -> None:
        self._delimiter = delimiter
        self._header = self._line(pa.RecordBatch.from_pylist([], schema), True) if header else b""

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        text = self._line(batch, False)
        lines = text.split(b"\n")[:-1]
        if len(lines) != batch.num_rows:  # a cell has a line end
            lines = [self._line(batch.slice(i, 1), False)[:-1] for i in range(batch.num_rows)]
        return pa.array([self._header + line for line in lines], pa.large_binary())

    def _line(self, batch: pa.RecordBatch, header: bool) -> bytes:
        out = io.BytesIO()
        options = pa_csv.WriteOptions(include_header=header, delimiter=self._delimiter)
        try:
            pa_csv.write_csv(batch, out, options)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise EncodeError(f"a row can't be written as CSV: {error}; leave the column out") from error
        return out.getvalue()


class _BadLineError(Exception):
    """A value that is no line of its type; the text is the reason."""


def _refuse_double_names(text: bytes, delimiter: str) -> None:
    """Raises _BadLineError if the first line names a column twice."""
    try:
        names = next(csv.reader(io.StringIO(text.decode(), newline=""), delimiter=delimiter))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _BadLineError(f"its line of names can't be read: {error}") from error
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise _BadLineError(f"it has two columns {doubled[0]!r}")


def _reason(error: Exception) -> str:
    return re.sub(r"^CSV parse error: |\bRow #\d+: ", "", str(error).splitlines()[0])
