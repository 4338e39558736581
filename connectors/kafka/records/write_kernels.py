"""The kernel that writes records as they stand in Kafka's record batches, version 2 (KIP-98). Import only if
kernels are enabled.

`records/read_kernels.py` reads what is written here; its docstring says how records look.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.blocks import BLOCK, store_uint8
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.copying import copy_short
from onceflow.runtime.kernels.memory import load_int32, load_int64, load_uint8
from onceflow.runtime.kernels.varints import put_varint, varint_bytes
from onceflow.runtime.records import Int64s

RECORD_BYTES_MAX = 37
"""The most bytes of a record without its key, value and headers: four varints of up to 5 bytes, one of up to
10, another 5 for its length, a byte of attributes and one to spare."""
HEADER_BYTES_MAX = 10
"""The most bytes of a header without its name and value."""
SLACK = BLOCK
"""The bytes behind the last record that may be overwritten."""

COLUMNS = 18
(
    KEY,
    VALUE,
    NAME,
    HEADER_VALUE,
    TIMES,
    HEADER_STARTS,
) = (0, 4, 8, 12, 16, 17)
"""What `write_records` takes: addresses. From KEY, VALUE, NAME and HEADER_VALUE on four each: of the offsets
(64 bits for keys and values, 32 for headers), of the bytes, of one byte for each value that says whether it
is null (0: none is), and of the end of the memory that holds the bytes. TIMES: of milliseconds, or 0 for all
at once. HEADER_STARTS: of where the headers of each row begin among all (32 bits), or 0: there are none."""

END = 3
_WIDE, _NARROW = 8, 4
_int64: Any = np.int64
"""Keeps a number wide: in a kernel a sum with a narrower number could become narrower."""
_uint64: Any = np.uint64


@kernel
def write_records(at: int, room: int, start: int, stop: int, columns: Int64s, written: Int64s) -> None:
    """Writes rows from `start` on to the address `at`, until `stop` or until `room` bytes are full; the first
    one in any case.

    A record's time is relative to the first row's. `written` gets the row that follows, the address that
    follows, and the latest time.
    """
    end = at + room
    first_time = time_of(columns, start)
    latest = first_time
    has_headers = columns[HEADER_STARTS] != 0
    row = start
    while row < stop:
        time = time_of(columns, row)
        key_at, key_bytes = extent(columns, KEY, _WIDE, row)
        value_at, value_bytes = extent(columns, VALUE, _WIDE, row)
        length = 1 + varint_bytes(time - first_time) + varint_bytes(row - start)
        length += field_bytes(key_bytes) + field_bytes(value_bytes)
        length += headers_bytes(columns, row) if has_headers else 1
        if at + varint_bytes(length) + length > end and row > start:
            break
        at = put_varint(at, length)
        store_uint8(at, 0)  # attributes, of which none is in use
        at = put_varint(at + 1, time - first_time)
        at = put_varint(at, row - start)
        at = put_field(at, key_at, key_bytes, columns[KEY + END])
        at = put_field(at, value_at, value_bytes, columns[VALUE + END])
        if has_headers:
            at = put_headers(at, columns, row)
        else:  # their count, a varint
            store_uint8(at, 0)
            at += 1
        latest = max(latest, time)
        row += 1
    written[0] = row
    written[1] = at
    written[2] = latest


@kernel
def time_of(columns: Int64s, row: int) -> int:
    if columns[TIMES] == 0:
        return _int64(0)  # type: ignore[no-any-return]
    return load_int64(columns[TIMES] + 8 * row)  # type: ignore[no-any-return]


@kernel
def extent(columns: Int64s, column: int, width: int, row: int) -> tuple[int, int]:
    """The address of a value and how many bytes it has, -1 for a null. `width`: of an offset."""
    starts = columns[column] + width * row
    if width == _WIDE:
        at = load_int64(starts)
        length = load_int64(starts + _WIDE) - at
    else:
        at = _int64(load_int32(starts))
        length = _int64(load_int32(starts + _NARROW)) - at
    nulls = columns[column + 2]
    if nulls != 0 and load_uint8(nulls + row) != 0:
        length = _int64(-1)
    return columns[column + 1] + at, length


@kernel
def headers_of(columns: Int64s, row: int) -> tuple[int, int]:
    """The first one of a row, and the one that follows on the last."""
    starts = columns[HEADER_STARTS]
    return _int64(load_int32(starts + 4 * row)), _int64(load_int32(starts + 4 * row + 4))


@kernel
def headers_bytes(columns: Int64s, row: int) -> int:
    """The bytes of a row's headers, with their count."""
    first, last = headers_of(columns, row)
    size = varint_bytes(last - first)
    for header in range(first, last):
        _, name_bytes = extent(columns, NAME, _NARROW, header)
        _, value_bytes = extent(columns, HEADER_VALUE, _NARROW, header)
        size += field_bytes(name_bytes) + field_bytes(value_bytes)
    return size


@kernel
def put_headers(at: int, columns: Int64s, row: int) -> int:
    first, last = headers_of(columns, row)
    at = put_varint(at, last - first)
    for header in range(first, last):
        name_at, name_bytes = extent(columns, NAME, _NARROW, header)
        value_at, value_bytes = extent(columns, HEADER_VALUE, _NARROW, header)
        at = put_field(at, name_at, name_bytes, columns[NAME + END])
        at = put_field(at, value_at, value_bytes, columns[HEADER_VALUE + END])
    return at


@kernel
def field_bytes(count: int) -> int:
    """The bytes of a field of `count` bytes (-1: a null), with its length."""
    return varint_bytes(count) + max(count, 0)


@kernel
def put_field(at: int, source: int, count: int, source_end: int) -> int:
    """The bytes at an address, behind their length; -1: a null."""
    at = put_varint(at, count)
    if count > 0:
        copy_short(at, source, count, source_end)
        at += count
    return at
