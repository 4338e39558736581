"""Confluent's wire format: a zero byte, the schema's id in four bytes (big-endian), then the datum."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from onceflow.runtime.records import Int64s, Mask

HEADER_BYTES = 5

_HEADER = np.uint64((1 << 40) - 1)


def header(schema_id: int) -> bytes:
    """What a datum with this schema begins with."""
    return struct.pack(">bI", 0, schema_id)


def one_schema_id(words: npt.NDArray[np.uint64], begin: Int64s, end: Int64s) -> int | None:
    """The schema id of all values, if each has the same: nearly always so. `words` as in read_headers."""
    first = words[begin] & _HEADER
    if (first != first[0]).any() or int((end - begin).min()) < HEADER_BYTES:
        return None
    zero, schema_id = struct.unpack(">BI", int(first[0]).to_bytes(HEADER_BYTES, "little"))
    return None if zero else int(schema_id)


def read_headers(words: npt.NDArray[np.uint64], begin: Int64s, end: Int64s) -> tuple[Int64s, Mask]:
    """The schema ids of values, and which have one. `words[i]`: the eight bytes from position i on."""
    first = words[begin]
    has_id: Mask = (end - begin >= HEADER_BYTES) & ((first & np.uint64(0xFF)) == 0)
    ids = (first >> np.uint64(8)).astype(np.uint32).byteswap().astype(np.int64)
    return ids, has_id


def why_no_header(value: bytes, form: str, plain: str) -> str:
    """What is wrong with a value that has no header. `form`: Avro or the like; `plain`: what reads values
    without one."""
    if len(value) < HEADER_BYTES:
        return f"it is not {form} in Confluent's wire format: {len(value)} bytes are less than its header's 5"
    return (
        f"it is not {form} in Confluent's wire format: the first byte is 0x{value[0]:02x}, not 0x00 ({plain})"
    )
