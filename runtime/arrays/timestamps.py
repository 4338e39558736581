"""Timestamps in the unit that a column wants: finer digits are cut off, towards the past.

Record types keep a datetime in milliseconds, and most others write microseconds (Spark and PostgreSQL) or
nanoseconds. The binary formats and JSON cut in their own loops; these are for what Arrow reads.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_UNITS: Final = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
_FINER: Final = {
    "s": (r"\.\d+", ""),
    "ms": (r"(\.\d{3})\d+", r"\1"),
    "us": (r"(\.\d{6})\d+", r"\1"),
    "ns": (r"(\.\d{9})\d+", r"\1"),
}


def cast_cutting(array: pa.Array, of: pa.DataType) -> pa.Array:
    """`array.cast(of)`, but finer digits of timestamps are cut off; those inside of lists and structs towards
    1970. Raises pa.ArrowException for any other value that `of` does not have."""
    if pa.types.is_timestamp(array.type) and pa.types.is_timestamp(of):
        try:
            return array.cast(of)
        except pa.ArrowInvalid:
            return pc.floor_temporal(array, unit=_UNITS[of.unit]).cast(of)
    return array.cast(options=pc.CastOptions(of, allow_time_truncate=True))


def timestamps_of_texts(texts: pa.Array, of: pa.TimestampType) -> pa.Array:
    """RFC 3339 texts as timestamps, with an offset just where `of` has a zone. Raises pa.ArrowInvalid for a
    text that is none."""
    try:
        return texts.cast(of)
    except pa.ArrowInvalid:
        return pc.replace_substring_regex(texts, *_FINER[of.unit]).cast(of)
