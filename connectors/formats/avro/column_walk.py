"""Avro datums to columns, all datums of a batch at a time, field by field.

A walk has a position in each datum; a step reads one field of all of them with a few NumPy operations. A
datum that surprises it (cut off, left-over bytes, a value out of range) is marked as doubtful and walked
on harmlessly: what it means, or what is wrong with it, `avro/rows.py` says. So a bad datum costs nothing
to its neighbours, and this file never has to explain one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.avro.arrays import decimals, floats, integers, is_utf8, lists, symbols, text
from onceflow.connectors.formats.avro.lanes import Datums, Lanes
from onceflow.connectors.formats.avro.plan import Read
from onceflow.runtime.records import Int64s

ITEMS_MAX = 64
"""Items of an array or a map that are walked here: each takes a pass over the batch."""

_TEXT = (pa.string(), pa.large_string())


class ColumnWalk:
    """Walks over datums that lie in one buffer."""

    def __init__(self, datums: Datums) -> None:
        self._datums = datums

    def columns(self, read: Read, lanes: Lanes) -> list[pa.Array]:
        """The columns of a record, with some value or other where `is_sure` turned False."""
        columns = self._fields(read, lanes)
        leftover = lanes.at != lanes.end
        if leftover.any():
            lanes.doubt(leftover)
        return columns

    # --- Numbers ---

    def _integer(self, read: Read, lanes: Lanes) -> pa.Array | None:
        value = self._datums.varints(lanes)
        if read.low > -(1 << 63) or read.high < (1 << 63) - 1:
            wrong = (value < read.low) | (value > read.high)
            if wrong.any():
                lanes.doubt(wrong)
                value = np.where(wrong, max(read.low, min(0, read.high)), value)
        return None if read.arrow is None else integers(value, read)

    def _float(self, read: Read, lanes: Lanes) -> pa.Array | None:
        size = 4 if read.node.kind == "float" else 8
        at = lanes.at
        lanes.at = at + size
        lanes.check()
        if read.arrow is None:
            return None
        return floats(self._datums.words[at], read)

    def _boolean(self, read: Read, lanes: Lanes) -> pa.Array | None:
        value = self._datums.data.take(lanes.at)
        lanes.at += 1
        wrong = value > 1
        if wrong.any():
            lanes.doubt(wrong)
        lanes.check()
        return None if read.arrow is None else pa.array(value.astype(np.bool_))

    def _enum(self, read: Read, lanes: Lanes) -> pa.Array | None:
        index = self._datums.varints(lanes)
        wrong = index.view(np.uint64) >= len(read.node.symbols)
        if wrong.any():
            lanes.doubt(wrong)
            index[wrong] = 0
        return None if read.arrow is None else symbols(index, read)

    # --- Text and bytes ---

    def _bytes(self, read: Read, lanes: Lanes) -> pa.Array | None:
        if read.node.kind == "fixed":
            fixed = np.full(len(lanes.at), read.node.size, np.int64)
            start, size = self._datums.taken(fixed, lanes)
        else:
            start, size = self._datums.sized(lanes)
        arrow = read.arrow
        if arrow is None:
            return None
        if pa.types.is_decimal128(arrow):
            value, wrong = decimals(self._datums.data, start, size, arrow)
            if wrong.any():
                lanes.doubt(wrong)
            return value
        if arrow in _TEXT:
            return self._text(arrow, start, size, lanes)
        raw = self._datums.pieces(start, size)
        if not pa.types.is_fixed_size_binary(arrow):
            return raw.cast(arrow)
        blank = bytes(arrow.byte_width)  # in the place of a doubtful one
        return pc.if_else(pa.array(size > 0), raw, pa.scalar(blank, raw.type)).cast(arrow)

    def _text(self, arrow: pa.DataType, start: Int64s, size: Int64s, lanes: Lanes) -> pa.Array:
        raw = self._datums.pieces(start, size)
        try:
            return text(raw, arrow)
        except pa.ArrowInvalid:
            wrong = np.array([not is_utf8(value) for value in raw.to_pylist()])
        lanes.doubt(wrong)
        return self._datums.pieces(start, np.where(wrong, 0, size)).cast(arrow)

    # --- Values that hold values ---

    def _fields(self, read: Read, lanes: Lanes) -> list[pa.Array]:
        found = [self._read(child, lanes) for child in read.children]
        count = len(lanes.at)
        return [found[c] if isinstance(c, int) else pa.repeat(c, count) for c in read.columns]

    def _record(self, read: Read, lanes: Lanes) -> pa.Array | None:
        columns = self._fields(read, lanes)
        if read.arrow is None:
            return None
        if not columns:
            return pa.array([{}] * len(lanes.at), read.arrow)
        return pa.StructArray.from_arrays(columns, fields=list(read.arrow))

    def _union(self, read: Read, lanes: Lanes) -> pa.Array | None:
        index = self._datums.varints(lanes)
        wrong = index.view(np.uint64) >= len(read.children)
        for i, branch in enumerate(read.children):
            if branch.unfit:
                wrong |= index == i
        if wrong.any():
            lanes.doubt(wrong)
            index[wrong] = -1
        count = len(index)
        parts: list[pa.Array] = []
        source = np.full(count, -1, np.int64)  # of each row, its place in the parts
        placed = 0
        for i, branch in enumerate(read.children):
            if branch.unfit or branch.node.kind == "null":
                continue
            rows = np.flatnonzero(index == i)
            if len(rows) == count:
                return self._read(branch, lanes)
            part = lanes.part(rows)
            column = self._read(branch, part)
            lanes.put_back(rows, part)
            source[rows] = np.arange(placed, placed + len(rows))
            placed += len(rows)
            parts.append(column)
        if read.arrow is None:
            return None
        whole = pa.concat_arrays(parts) if parts else pa.nulls(0, read.arrow)
        return whole.take(pa.array(source, mask=source < 0))

    def _array(self, read: Read, lanes: Lanes) -> pa.Array | None:
        keys: list[pa.Array] = []
        items: list[pa.Array] = []
        owners: list[Int64s] = []
        left = np.zeros(len(lanes.at), np.int64)
        rows = np.arange(len(lanes.at))
        for _ in range(ITEMS_MAX + 1):
            rows = self._open_blocks(rows, left, lanes)
            if not len(rows):
                break
            part = lanes.part(rows)
            if read.node.kind == "map":
                keys.append(self._key(read, part))
            items.append(self._read(read.children[0], part))
            lanes.put_back(rows, part)
            left[rows] -= 1
            owners.append(rows)
        else:
            too_long = np.zeros(len(left), np.bool_)
            too_long[rows] = True
            lanes.doubt(too_long)
        return None if read.arrow is None else lists(read.arrow, len(left), owners, keys, items)

    def _open_blocks(self, rows: Int64s, left: Int64s, lanes: Lanes) -> Int64s:
        """The rows of these that have an item next. `left`: what is left of each row's open block."""
        done = rows[left[rows] == 0]
        if len(done):
            part = lanes.part(done)
            count = self._datums.varints(part)
            sized = np.flatnonzero(count < 0)
            if len(sized):
                inner = part.part(sized)
                self._datums.varints(inner)
                part.put_back(sized, inner)
                count[sized] = -count[sized]
            wrong = count.view(np.uint64) > (part.end - part.at).view(np.uint64)
            if wrong.any():
                part.doubt(wrong)
            count[~part.is_sure] = 0
            lanes.put_back(done, part)
            left[done] = count
        return rows[(left[rows] > 0) & lanes.is_sure[rows]]

    def _key(self, read: Read, lanes: Lanes) -> pa.Array | None:
        start, size = self._datums.sized(lanes)
        return None if read.arrow is None else self._text(read.arrow.key_type, start, size, lanes)

    def _read(self, read: Read, lanes: Lanes) -> Any:
        kind = read.node.kind
        if kind == "null":
            return None if read.arrow is None else pa.nulls(len(lanes.at), read.arrow)
        return _STEPS[kind](self, read, lanes)


_STEPS: dict[str, Any] = {
    "int": ColumnWalk._integer,
    "long": ColumnWalk._integer,
    "float": ColumnWalk._float,
    "double": ColumnWalk._float,
    "boolean": ColumnWalk._boolean,
    "enum": ColumnWalk._enum,
    "string": ColumnWalk._bytes,
    "bytes": ColumnWalk._bytes,
    "fixed": ColumnWalk._bytes,
    "record": ColumnWalk._record,
    "union": ColumnWalk._union,
    "array": ColumnWalk._array,
    "map": ColumnWalk._array,
}
