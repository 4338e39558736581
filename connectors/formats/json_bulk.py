"""A JSON decoder for all values at once: quick code does the plain ones, JsonDecoder the others.

Every verdict is JsonDecoder's: what the quick code is not sure of goes there, and the rows that come of it
are put back in their places. Where a topic has many such values, JsonDecoder does all of them for a
while, so that nobody pays for quick code that does not help.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
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
from onceflow.connectors.formats.spans import Spans
from onceflow.runtime.records import Int64s

_REST = 32
"""JsonDecoder works alone, after values that were too odd, for this many times as many values."""
_SPLICED_MAX = 16
"""The most odd rows that are put between slices of the plain ones; more are gathered row by row."""
_TEXT_BYTES_MAX = (1 << 31) - 1


class PlainRows(Protocol):
    """The quick code for the columns of one decoder."""

    @property
    def values_min(self) -> int:
        """The number of values below which it costs more than it saves."""
        ...

    @property
    def odd_share_max(self) -> float:
        """If more of the values than this share are not plain, it costs more than it saves."""
        ...

    def decode(self, values: pa.Array | Spans) -> tuple[pa.RecordBatch, Int64s]:
        """The rows of the plain values, as JsonDecoder would make them, and where the others are.

        `values`: if an array, binary or large_binary; their buffer has less than 2 GiB.
        """
        ...


class BulkJsonDecoder:
    """See Decoder. For schemas with plain types: see `has_plain_types`."""

    def __init__(self, twin: Decoder, plain: PlainRows, values_min: int | None = None) -> None:
        """`twin`: a JsonDecoder; it decides what `plain` does not, and decodes alone what is fewer values
        than `values_min`; None: than `plain` says."""
        self._values_min = plain.values_min if values_min is None else values_min
        self._twin = twin
        self._plain = plain
        self._schema = twin.schema
        self._alone = 0  # values that the twin still decodes alone

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        if self._alone > 0 or len(values) < self._values_min:
            self._alone = max(0, self._alone - len(values))
            return self._twin.decode(values)
        together = values if isinstance(values, Spans) else as_binary(values)
        size = len(together.content) if isinstance(together, Spans) else together.nbytes
        # Above 2 GiB bytes objects become a chunked array, and 32 bits may not hold where a text ends.
        if isinstance(together, pa.ChunkedArray) or size > _TEXT_BYTES_MAX:
            return self._twin.decode(values)
        plain, odd = self._plain.decode(together)
        if len(odd) > self._plain.odd_share_max * len(values):
            self._alone = _REST * len(values)
        return self._with_odd(plain, odd, values) if len(odd) else Decoded(plain, None)

    def _with_odd(self, plain: pa.RecordBatch, odd: Int64s, values: Values) -> Decoded:
        """The plain rows, and what JsonDecoder says of the odd values, in their order."""
        decoded = self._twin.decode(taken(values, odd))
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
