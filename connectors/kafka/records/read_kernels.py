"""Kernels that walk over Kafka's records, version 2 (KIP-98). Import only if kernels are enabled.

Records are varints (zigzag, as protocol buffers have them) and bytes. Every step stays within the bounds it
was given: what does not is answered with MALFORMED.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onceflow.connectors.kafka.fetched import CREATE_TIME
from onceflow.connectors.kafka.records.section import (
    AT,
    END,
    FIRST_OFFSET,
    FIRST_TIME,
    FIXED_TIME,
    LEFT,
    SPLIT,
    TIME_KIND,
    WANTED_FROM,
    WANTED_TO,
)
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes
from onceflow.runtime.kernels.varints import varint
from onceflow.runtime.records import Int64s

MALFORMED = -1
"""What is answered where bytes are no record, as `varint` answers where they are no number."""

RECORD_FIELDS = 9
VALUE_AT, VALUE_BYTES, KEY_AT, KEY_BYTES, HEADERS_AT, OFFSET, TIME, KIND, ROW_SPLIT = range(RECORD_FIELDS)
"""What `read` gives of each record. `_AT` are addresses, HEADERS_AT that of the headers' count; a null has -1
bytes."""

SUMS = 4
"""How many numbers `read` gives: bytes of values and of keys, null values and null keys."""


@kernel
def read(
    sections: npt.NDArray[np.int64],
    with_headers: bool,
    rows_max: int,
    records: npt.NDArray[np.int64],
    sums: Int64s,
) -> int:
    """The next records of these sections (n x SECTION_FIELDS), at most rows_max and as many as `records`
    (RECORD_FIELDS x n) has room for; how many.

    Sections go on where they were left; one that is finished has nothing left. Headers are checked only
    if `with_headers`.
    """
    room = min(rows_max, records.shape[1])
    rows = 0
    for i in range(SUMS):
        sums[i] = 0
    for number in range(len(sections)):
        section = sections[number]
        at = section[AT]
        left = section[LEFT]
        while left > 0 and rows < room:
            at = read_record(at, section[END], with_headers, records, rows)
            if at == MALFORMED:
                return MALFORMED
            left -= 1
            offset = section[FIRST_OFFSET] + records[OFFSET, rows]
            if offset < section[WANTED_FROM] or offset >= section[WANTED_TO]:
                continue
            records[OFFSET, rows] = offset
            if section[TIME_KIND] == CREATE_TIME:
                records[TIME, rows] += section[FIRST_TIME]
            else:
                records[TIME, rows] = section[FIXED_TIME]
            records[KIND, rows] = section[TIME_KIND]
            records[ROW_SPLIT, rows] = section[SPLIT]
            sums[0] += max(records[VALUE_BYTES, rows], 0)
            sums[1] += max(records[KEY_BYTES, rows], 0)
            sums[2] += records[VALUE_BYTES, rows] < 0
            sums[3] += records[KEY_BYTES, rows] < 0
            rows += 1
        if left == 0 and at != section[END]:
            return MALFORMED
        section[AT] = at
        section[LEFT] = left
    return rows


@kernel
def read_record(at: int, end: int, with_headers: bool, records: npt.NDArray[np.int64], row: int) -> int:
    """One record to its column, offset and time relative to its batch's; the address behind it."""
    length, at = varint(at, end)
    if at < 0 or length < 1 or length > end - at:
        return MALFORMED
    after = at + length
    time_delta, at = varint(at + 1, after)  # behind the attributes, of which none is in use
    offset_delta, at = varint_if(at, after)
    key_bytes, key_at = varint_if(at, after)
    if key_at < 0 or key_bytes < -1 or key_bytes > after - key_at:
        return MALFORMED
    value_bytes, value_at = varint(key_at + max(key_bytes, 0), after)
    if value_at < 0 or value_bytes < -1 or value_bytes > after - value_at:
        return MALFORMED
    headers_at = value_at + max(value_bytes, 0)
    if with_headers and skip_headers(headers_at, after) != after:
        return MALFORMED
    records[VALUE_AT, row] = value_at
    records[VALUE_BYTES, row] = value_bytes
    records[KEY_AT, row] = key_at
    records[KEY_BYTES, row] = key_bytes
    records[HEADERS_AT, row] = headers_at
    records[OFFSET, row] = offset_delta
    records[TIME, row] = time_delta
    return after


@kernel
def gather(
    at: Int64s,
    lengths: Int64s,
    starts: npt.NDArray[np.int32 | np.int64],
    valid: npt.NDArray[np.uint8],
    target: int,
) -> None:
    """Copies what begins at these addresses one after the other to `target`. `starts` (one longer) gets where
    each begins. `valid`, a bitmap of zeros, gets a one for each that is no null; empty: not needed."""
    written = 0
    for i in range(len(at)):
        starts[i] = written
        length = lengths[i]
        if length >= 0:
            copy_bytes(target + written, at[i], length)
            written += length
            if len(valid) > 0:
                valid[i >> 3] |= np.uint8(1 << (i & 7))
    starts[len(at)] = written


@kernel
def skip_headers(at: int, end: int) -> int:
    """The address behind a record's headers; MALFORMED if they run over the end."""
    count, at = varint(at, end)
    if at < 0 or count < 0:
        return MALFORMED
    for _ in range(count):
        length, at = varint(at, end)
        if at < 0 or length < 0 or length > end - at:
            return MALFORMED
        length, at = varint(at + length, end)
        if at < 0 or length < -1 or length > end - at:
            return MALFORMED
        at += max(length, 0)
    return at


@kernel
def varint_if(at: int, end: int) -> tuple[int, int]:
    """varint, unless the address is MALFORMED: it stays so."""
    if at < 0:
        return 0, MALFORMED
    return varint(at, end)
