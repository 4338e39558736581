"""PackedRows: rows of Arrow columns as bytes, one by one, and back; a batch at a time, in columns.

A row is a number that says whose it is, a bit for each cell that is null, the cells of fixed width, for each
text its length, and then the texts. A struct is its fields, behind a bit of its own. What has none of these
forms, a list or a map, is a text in MessagePack: only of such is there a Python value for each row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.records import Int64s, Mask
from onceflow.runtime.state.columns import null_mask
from onceflow.runtime.state.plain_values import array_of_plain, plain_values

NUMBER_BYTES = 2
_NOTHING = pa.scalar(b"", pa.large_binary())
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()
_t = pa.types


class PackedRows:
    """Rows with columns of these types, in this order."""

    def __init__(self, number: int, types: Sequence[pa.DataType]) -> None:
        """`number`: what each row begins with, in NUMBER_BYTES."""
        self._number = number
        self._types = list(types)
        self._leaves = [leaf for of in types for leaf in _leaves(of)]
        null_bytes = (len(self._leaves) + 7) // 8
        fields: list[tuple[Any, ...]] = [("number", "<u2"), ("nulls", "u1", (null_bytes,))]
        for place, leaf in enumerate(self._leaves):
            if leaf is not None:
                fields.append((str(place), "<u4" if _is_text(leaf) else f"V{_width(leaf)}"))
        self._cells = np.dtype(fields)

    def pack(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """Each row of these columns."""
        count = len(columns[0])
        cells = np.zeros(count, self._cells)
        cells["number"] = self._number
        nulls = np.zeros((count, len(self._leaves)), np.bool_)
        texts = []
        for place, array in enumerate(_flat(columns, self._types)):
            if (is_null := null_mask(array)) is not None:
                nulls[:, place] = is_null
            leaf = self._leaves[place]
            if leaf is None:
                continue
            if not _is_text(leaf):
                cells[str(place)] = _words(array, _width(leaf))
                continue
            texts.append(array.fill_null("" if _t.is_string(leaf) or _t.is_large_string(leaf) else b""))
            cells[str(place)] = np.diff(offsets_of(texts[-1]))
        cells["nulls"] = np.packbits(nulls, axis=1, bitorder="little")
        if not texts:
            packed: list[bytes] = cells.view(f"V{cells.itemsize}").tolist()
            return packed
        return _joined(cells, texts)

    def unpack(self, rows: Sequence[bytes]) -> list[pa.Array]:
        """The columns of rows that `pack` gave."""
        joined = pa.array(rows, pa.large_binary())
        bounds, data = offsets_of(joined), joined.buffers()[2]
        width = self._cells.itemsize
        cells = np.frombuffer(_gathered(bounds[:-1], width, data), self._cells)
        nulls = np.unpackbits(cells["nulls"], axis=1, bitorder="little").astype(np.bool_)
        begins = bounds[:-1] + width
        leaves: list[pa.Array] = []
        for place, leaf in enumerate(self._leaves):
            is_null = nulls[:, place] if nulls[:, place].any() else None
            if leaf is None:
                leaves.append(pa.array(~nulls[:, place]))
            elif _is_text(leaf):
                ends = begins + cells[str(place)]
                leaves.append(_text(begins, ends, data, leaf, is_null))
                begins = ends
            else:
                leaves.append(_word(np.ascontiguousarray(cells[str(place)]), leaf, is_null))
        whole = iter(leaves)
        return [_built(of, whole) for of in self._types]


def _leaves(of: pa.DataType) -> Iterator[pa.DataType | None]:
    """What a column of this type is packed as: types of fixed width, texts, and None for the bit that says
    whether a struct is there."""
    if _is_struct(of):
        yield None
        for field in of:
            yield from _leaves(field.type)
    elif _is_text(of) or _is_fixed(of):
        yield of
    else:
        yield pa.large_binary()


def _flat(columns: Sequence[pa.Array], types: Sequence[pa.DataType]) -> Iterator[pa.Array]:
    """The arrays of the leaves; of a struct itself one that is null where it is."""
    for array, of in zip(columns, types, strict=True):
        if _is_struct(of):
            yield array
            fields = [array.field(i) for i in range(of.num_fields)]
            yield from _flat(fields, [field.type for field in of])
        elif _is_text(of) or _is_fixed(of):
            yield array
        else:
            values = [None if v is None else _ENCODER.encode(v) for v in plain_values(array)]
            yield pa.array(values, pa.large_binary())


def _built(of: pa.DataType, leaves: Iterator[pa.Array]) -> pa.Array:
    """A column of this type, of the next leaves."""
    array = next(leaves)
    if _is_struct(of):
        fields = [_built(field.type, leaves) for field in of]
        has_nulls = not pc.all(array).as_py() if len(array) else False
        mask = pc.invert(array) if has_nulls else None
        return pa.StructArray.from_arrays(fields, fields=list(of), mask=mask)
    if _is_text(of) or _is_fixed(of):
        return array
    return array_of_plain([None if v is None else _DECODER.decode(v) for v in array.to_pylist()], of)


def _joined(cells: npt.NDArray[Any], texts: Sequence[pa.Array]) -> list[bytes]:
    """Each row's cells and texts."""
    ends = np.arange(0, cells.nbytes + 1, cells.itemsize, dtype=np.int64)
    fixed = pa.Array.from_buffers(
        pa.large_binary(), len(cells), [None, pa.py_buffer(ends), pa.py_buffer(cells.view(np.uint8))]
    )
    joined = pc.binary_join_element_wise(fixed, *(text.cast(pa.large_binary()) for text in texts), _NOTHING)
    bounds, data = offsets_of(joined).tolist(), joined.buffers()[2].to_pybytes()
    return [data[begin:end] for begin, end in pairwise(bounds)]


def _gathered(begins: Int64s, width: int, data: pa.Buffer) -> pa.Buffer:
    """Take so many bytes from each of these places on, one after the other."""
    bounds = np.stack([begins, begins + width], axis=1).reshape(-1)
    return _taken(bounds, data).buffers()[2] if len(begins) else pa.py_buffer(b"")


def _taken(bounds: Int64s, data: pa.Buffer) -> pa.Array:
    """What lies between these bounds, which come in pairs."""
    between = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), data])
    return between.take(pa.array(np.arange(0, len(bounds), 2)))


def _text(begins: Int64s, ends: Int64s, data: pa.Buffer, of: pa.DataType, is_null: Mask | None) -> pa.Array:
    if not len(begins):
        return pa.array([], of)
    texts = _taken(np.stack([begins, ends], axis=1).reshape(-1), data)
    offsets = offsets_of(texts)
    if not (_t.is_large_string(of) or _t.is_large_binary(of)):
        assert offsets[-1] < 1 << 31, "pieces are smaller"
        offsets = offsets.astype(np.int32)
    buffers = [_validity(is_null), pa.py_buffer(offsets), texts.buffers()[2]]
    return pa.Array.from_buffers(of, len(texts), buffers)


def _word(values: npt.NDArray[Any], of: pa.DataType, is_null: Mask | None) -> pa.Array:
    if _t.is_boolean(of):
        bits = pa.py_buffer(np.packbits(values.view(np.uint8), bitorder="little"))
    else:
        bits = pa.py_buffer(values)
    return pa.Array.from_buffers(of, len(values), [_validity(is_null), bits])


def _words(array: pa.Array, width: int) -> npt.NDArray[Any]:
    """The cells of an array of fixed width, whatever they are of."""
    if _t.is_boolean(array.type):
        array = array.cast(pa.uint8())
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(len(array), f"V{width}")
    return np.frombuffer(buffer, f"V{width}", len(array), array.offset * width)


def _validity(is_null: Mask | None) -> pa.Buffer | None:
    return None if is_null is None else pa.array(~is_null).buffers()[1]


def _width(of: pa.DataType) -> int:
    return 1 if _t.is_boolean(of) else int(of.bit_width) // 8


def _is_struct(of: pa.DataType) -> bool:
    return bool(_t.is_struct(of)) and of.num_fields > 0


def _is_text(of: pa.DataType) -> bool:
    return bool(_t.is_string(of) or _t.is_binary(of) or _t.is_large_string(of) or _t.is_large_binary(of))


def _is_fixed(of: pa.DataType) -> bool:
    return bool(_t.is_primitive(of) or _t.is_decimal(of))
