"""A JSON decoder for all values at once: a kernel does the plain ones, JsonDecoder the others. Import only if
kernels are enabled.

Every verdict is JsonDecoder's: what the kernel is not sure of goes there, and the rows that come of it are
put back in their places. Where a topic has many such values, JsonDecoder does all of them for a while, so
that nobody pays for a kernel that does not help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.format import (
    BadValue,
    Decoded,
    Decoder,
    Values,
    as_binary,
    rows_without_columns,
    taken,
)
from onceflow.connectors.formats.json.compiled import row_kernels as kernels
from onceflow.connectors.formats.json.compiled.columns import KernelColumns
from onceflow.runtime.records import Int64s
from onceflow.runtime.types.value_types import RecordType

_VALUES_MIN = 256
"""The kernel is worth its cost from this many values on."""
_ODD_SHARE_MAX = 0.5
"""If more of the values than this share are not plain, it costs more than it saves."""
_REST = 32
"""JsonDecoder works alone, after values that were too odd, for this many times as many values."""
_SPLICED_MAX = 16
"""The most odd rows that are put between slices of the plain ones; more are gathered row by row."""
_TEXT_BYTES_MAX = (1 << 31) - 1
_NO_WORDS = np.empty(0, np.int64)
_NO_BYTES = np.empty(0, np.uint8)


class BulkJsonDecoder:
    """See Decoder. For schemas with plain types: see `has_plain_types`."""

    def __init__(self, judge: Decoder, record_type: RecordType | None, values_min: int = _VALUES_MIN) -> None:
        """`judge`: a JsonDecoder of this record type; it decides what the kernel does not, and decodes alone
        what is fewer values than `values_min`."""
        self._values_min = values_min
        self._judge = judge
        self._schema = judge.schema
        self._plain = _PlainRows(self._schema, record_type)
        self._alone = 0  # values that the judge still decodes alone

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        if self._alone > 0 or len(values) < self._values_min:
            self._alone = max(0, self._alone - len(values))
            return self._judge.decode(values)
        together = as_binary(values)
        # Above 2 GiB bytes objects become a chunked array, and 32 bits may not hold where a text ends.
        if isinstance(together, pa.ChunkedArray) or together.nbytes > _TEXT_BYTES_MAX:
            return self._judge.decode(values)
        plain, odd = self._plain.decode(together)
        if len(odd) > _ODD_SHARE_MAX * len(values):
            self._alone = _REST * len(values)
        return self._with_odd(plain, odd, values) if len(odd) else Decoded(plain, None)

    def _with_odd(self, plain: pa.RecordBatch, odd: Int64s, values: Values) -> Decoded:
        """The plain rows, and what JsonDecoder says of the odd values, in their order."""
        decoded = self._judge.decode(taken(values, odd))
        bad = [BadValue(int(odd[row]), reason) for row, reason in decoded.bad]
        good = odd if decoded.rows is None else odd[decoded.rows]
        is_plain = np.ones(len(values), np.bool_)
        is_plain[odd] = False
        rows = np.flatnonzero(is_plain)
        # Of `good` the rows before each of them, less those that are odd or bad themselves.
        places = np.searchsorted(rows, good)
        join = _splice if len(good) <= _SPLICED_MAX else _gather
        arrays = [
            join(ours, theirs, places)
            for ours, theirs in zip(plain.columns, decoded.batch.columns, strict=True)
        ]
        rows = np.insert(rows, places, good)
        return Decoded(self._batch(arrays, len(rows)), None if len(rows) == len(values) else rows, bad)

    def _batch(self, arrays: list[pa.Array], count: int) -> pa.RecordBatch:
        if not arrays:
            return rows_without_columns(count)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _splice(plain: pa.Array, odd: pa.Array, places: Int64s) -> pa.Array:
    """Odd row i goes before the plain row at `places[i]`; slices are copied, which is quick for a few."""
    pieces = []
    begin = 0
    for i, place in enumerate(places.tolist()):
        pieces += [plain.slice(begin, place - begin), odd.slice(i, 1)]
        begin = place
    return pa.concat_arrays([*pieces, plain.slice(begin)])


def _gather(plain: pa.Array, odd: pa.Array, places: Int64s) -> pa.Array:
    """The same, row by row."""
    chosen = np.insert(np.arange(len(plain)), places, len(plain) + np.arange(len(odd)))
    return pa.concat_arrays([plain, odd]).take(pa.array(chosen))


class _PlainRows:
    """What the kernel makes of many values."""

    def __init__(self, schema: pa.Schema, record_type: RecordType | None) -> None:
        """`schema`: columns with plain types."""
        self._schema = schema
        self._columns = KernelColumns(schema, record_type)
        self._shape = kernels.empty_shape()
        # No record waits for the compiler.
        kernels.decode_rows(_NO_WORDS, _NO_WORDS, _NO_BYTES, self._columns.words, self._shape, _NO_WORDS)

    def decode(self, array: pa.Array) -> tuple[pa.RecordBatch, Int64s]:
        """The rows of the plain values, as JsonDecoder would make them, and where the others are.

        `array`: binary or large_binary; its buffer has less than 2 GiB.
        """
        begins, ends, _tail = _addresses(array)
        is_null = _NO_BYTES
        if array.null_count:
            is_null = array.is_null().to_numpy(zero_copy_only=False).view(np.uint8)
        odd = np.empty(len(array), np.int64)
        self._columns.prepare(len(array), int((ends - begins).sum()))
        count = kernels.decode_rows(begins, ends, is_null, self._columns.words, self._shape, odd)
        arrays = self._columns.take(count)
        if not arrays:
            return rows_without_columns(count), odd[: len(array) - count]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), odd[: len(array) - count]


def _addresses(array: pa.Array) -> tuple[Int64s, Int64s, npt.NDArray[np.uint8] | None]:
    """Where each value begins and ends, and what to keep alive meanwhile: the last values may lie so
    near to their buffer's end that the kernel can't read them there, and are copied."""
    _, offsets, data = array.buffers()
    width: Any = np.int64 if array.type == pa.large_binary() else np.int32
    places = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    content = _NO_BYTES if data is None else np.frombuffer(data, np.uint8)
    address = content.ctypes.data
    begins, ends = places[:-1] + address, places[1:] + address
    first = int(np.searchsorted(places[1:], len(content) - kernels.READ_BEHIND, "right"))
    if first == len(array):
        return begins, ends, None
    begin, end = int(places[first]), int(places[-1])
    tail = np.zeros(end - begin + kernels.READ_BEHIND, np.uint8)
    tail[: end - begin] = content[begin:end]
    moved = tail.ctypes.data - address - begin
    begins[first:] += moved
    ends[first:] += moved
    return begins, ends, tail
