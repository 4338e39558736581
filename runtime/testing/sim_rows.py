"""The rows that the simulated job puts out."""

from __future__ import annotations

import pyarrow as pa

WINDOW_MS = 10

RESULT_SCHEMA = pa.schema([(name, pa.int64()) for name in ("kind", "key", "at", "count", "total")])

RAW, RUNNING, WINDOW, REAL_WINDOW = range(4)
Row = tuple[int, ...]
"""A row of output: (RAW, id), (RUNNING, key, count), (WINDOW or REAL_WINDOW, key, end, count, total)."""


def window_end(ts: int) -> int:
    return (ts // WINDOW_MS + 1) * WINDOW_MS
