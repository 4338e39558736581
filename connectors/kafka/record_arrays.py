"""Kafka's records, version 2 (KIP-98), by whole arrays: what `record_kernels.py` does, without kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from onceflow.connectors.kafka.record_starts import Bytes, check, find_starts, varints
from onceflow.runtime.records import Indices, Int64s

AHEAD = 64
"""So many bytes behind the last record can be read: more than the numbers of one record take."""


class RecordPlaces(NamedTuple):
    """By record. Places count from the first byte; a null has -1 bytes."""

    value_at: Int64s
    value_bytes: Int64s
    key_at: Int64s
    key_bytes: Int64s
    headers_at: Int64s
    """Where their count is."""
    end: Int64s
    """Of the record."""
    offset_delta: Int64s
    time_delta: Int64s


def find_records(content: Bytes, bounds: Sequence[int], counts: Sequence[int]) -> RecordPlaces:
    """The records of sections that lie one behind the other. `bounds`: where each begins and where the last
    one ends; before is a zero, behind are AHEAD bytes. `counts`: of each section's records.

    Raises ProtocolError if they are malformed; headers are not looked at.
    """
    at, after = find_starts(content, bounds, counts)
    time_delta, at = varints(content, at + 1)  # behind the attributes, of which none is in use
    offset_delta, at = varints(content, at)
    key_bytes, key_at = varints(content, at)
    check((key_bytes >= -1) & (key_bytes <= after - key_at))
    value_bytes, value_at = varints(content, key_at + np.maximum(key_bytes, 0))
    left = after - value_at
    check((value_bytes >= -1) & (value_bytes <= left) & (left >= 0))
    headers_at = value_at + np.maximum(value_bytes, 0)
    return RecordPlaces(value_at, value_bytes, key_at, key_bytes, headers_at, after, offset_delta, time_delta)


class HeaderPlaces(NamedTuple):
    """By header, in the records' order."""

    row: Indices
    """Of the record."""
    name_at: Int64s
    name_bytes: Int64s
    value_at: Int64s
    value_bytes: Int64s


def find_headers(content: Bytes, at: Int64s, end: Int64s) -> HeaderPlaces:
    """Of records whose headers are there. Raises ProtocolError if they don't fill their places.

    The first header of every record that has one is looked at, then the second, and so on.
    """
    count, at = varints(content, at)
    check((count >= 0) & (count <= end - at))
    rows = np.flatnonzero(count)
    found = [HeaderPlaces(rows[:0], *(at[:0],) * 4)]
    while len(rows):
        name_bytes, name_at = varints(content, at[rows])
        check((name_bytes >= 0) & (name_bytes <= end[rows] - name_at))
        value_bytes, value_at = varints(content, name_at + name_bytes)
        left = end[rows] - value_at
        check((value_bytes >= -1) & (value_bytes <= left) & (left >= 0))
        at[rows] = value_at + np.maximum(value_bytes, 0)
        found.append(HeaderPlaces(rows, name_at, name_bytes, value_at, value_bytes))
        rows = rows[count[rows] >= len(found)]
    check(at == end)
    columns = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return HeaderPlaces(*(column[order] for column in columns))
