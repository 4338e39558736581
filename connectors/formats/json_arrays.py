"""Rows of many JSON values without kernels: NumPy finds the scalars, Arrow makes columns of them.

Values of a topic that a program writes look alike: the same names in the same order with the same
punctuation. One of them shows what is between the scalars; where that is found in the others too, there is
nothing left to parse. What does not look alike is odd.
"""

from __future__ import annotations

import collections

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import Decoder, as_list, rows_without_columns, taken
from onceflow.connectors.formats.json_decoder import has_factory
from onceflow.connectors.formats.json_scalars import kind_of, odd_scalars, read_scalars
from onceflow.connectors.formats.json_shape import NO_COLUMN, Scalar, Shape, shape_of
from onceflow.connectors.formats.json_texts import Memory, Texts
from onceflow.connectors.formats.json_walk import Guesses, Walk
from onceflow.connectors.formats.spans import Spans
from onceflow.runtime.record_types import RecordType
from onceflow.runtime.records import Int64s, Mask

_ANY: Mask = np.zeros(0, np.bool_)
_SAMPLE = 8
"""Values that are looked at one by one to find the shape."""
_MEMORY_KEPT_BYTES = 64 << 20


class ArrayRows:
    """See PlainRows."""

    values_min = 2_000
    odd_share_max = 0.05
    run_cost = 9
    """What a run takes, in about 10 ns a value; see `_pays`."""

    def __init__(self, twin: Decoder, record_type: RecordType | None) -> None:
        """`twin`: a JsonDecoder of this record type, of columns with plain types."""
        self._twin = twin
        self._schema = twin.schema
        self._columns = {field.name.encode(): i for i, field in enumerate(self._schema)}
        self._factories = {i for i, field in enumerate(self._schema) if has_factory(record_type, field.name)}
        self._guesses: Guesses | None = None
        self._absent: dict[int, pa.Scalar] = {}
        self._memory = Memory()
        self._nothing = self._batch({}, 0)

    def decode(self, values: pa.Array | Spans) -> tuple[pa.RecordBatch, Int64s]:
        rows: Int64s = np.zeros(0, np.int64)
        batch = self._nothing
        is_enough = False
        if self._guesses is not None and self._pays(self._guesses):
            batch, rows = self._decode(values, self._guesses)
            is_enough = len(rows) >= (1 - self.odd_share_max) * len(values)
        if not is_enough:
            self._guesses = self._learn(values)
            if self._guesses is not None and self._pays(self._guesses):
                batch, rows = self._decode(values, self._guesses)
        is_odd = np.ones(len(values), np.bool_)
        is_odd[rows] = False
        return batch, np.flatnonzero(is_odd)

    def _decode(self, values: pa.Array | Spans, guesses: Guesses) -> tuple[pa.RecordBatch, Int64s]:
        """The rows of the values that are of this shape, and which values these are."""
        walk = Walk(Texts(values, self._memory, guesses.ahead), _there(values), guesses)
        arrays: dict[int, pa.Array] = {}
        for i in walk.unread():
            scalar = guesses.shape.scalars[i]
            odd: Mask | None = _ANY
            while odd is not None and len(walk.rows):
                array, odd = self._read(scalar, walk.pieces(i))
                if odd is not None:
                    walk.keep(~odd)
                    arrays = {column: earlier.filter(pa.array(~odd)) for column, earlier in arrays.items()}
                elif scalar.column != NO_COLUMN:
                    arrays[scalar.column] = array
        if len(self._memory.texts) > _MEMORY_KEPT_BYTES:
            self._memory = Memory()
        return self._batch(arrays, len(walk.rows)), walk.rows

    def _pays(self, guesses: Guesses) -> bool:
        """Whether this is quicker than msgspec, which takes about 40 ns for a scalar and 70 more for one that
        becomes a Python object. Measured, see docs/performance.md; a wrong answer costs time only."""
        objects = sum(not pa.types.is_floating(arrow) for arrow in self._schema.types)
        return self.run_cost * (len(guesses.runs) - 1) <= 10 + 4 * len(guesses.shape.scalars) + 7 * objects

    def _read(self, scalar: Scalar, pieces: pa.Array) -> tuple[pa.Array, Mask | None]:
        """See `read_scalars`."""
        if scalar.column == NO_COLUMN:
            return pieces, odd_scalars(scalar.kind, pieces)
        return read_scalars(self._schema.types[scalar.column], pieces)

    def _batch(self, arrays: dict[int, pa.Array], count: int) -> pa.RecordBatch:
        if not self._columns:
            return rows_without_columns(count)
        if not count:
            return pa.RecordBatch.from_pylist([], self._schema)
        absent = {column: pa.repeat(value, count) for column, value in self._absent.items()}
        by_column = arrays | absent
        return pa.RecordBatch.from_arrays([by_column[i] for i in range(len(by_column))], schema=self._schema)

    def _learn(self, values: pa.Array | Spans) -> Guesses | None:
        """The shape that most of some of these values have; None: none that would help."""
        sample = as_list(taken(values, np.arange(0, len(values), max(1, len(values) // _SAMPLE))))
        there = [value for value in sample if value is not None]
        shapes = {value: shape for value in there if (shape := shape_of(value, self._columns)) is not None}
        if not shapes:
            return None
        usual, _ = collections.Counter(shape.texts for shape in shapes.values()).most_common(1)[0]
        for value, shape in shapes.items():
            if shape.texts == usual and self._is_readable(value, shape):
                return Guesses(shape, list(shapes.values()))
        return None

    def _is_readable(self, value: bytes, shape: Shape) -> bool:
        """Whether JsonDecoder takes the value, and a value of its shape has what the columns need."""
        decoded = self._twin.decode([value])
        wanted = {scalar.column: scalar.kind for scalar in shape.scalars if scalar.column != NO_COLUMN}
        absent = set(self._columns.values()) - set(wanted)
        is_kind = all(kind_of(self._schema.types[column]) == kind for column, kind in wanted.items())
        if decoded.bad or not is_kind or absent & self._factories:
            return False
        self._absent = {column: decoded.batch.column(column)[0] for column in absent}
        return True


def _there(values: pa.Array | Spans) -> Int64s:
    """Which are no nulls."""
    if isinstance(values, Spans):
        is_null = values.is_null()
    else:
        is_null = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
    return np.arange(len(values)) if is_null is None else np.flatnonzero(~is_null)
