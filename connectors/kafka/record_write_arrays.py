"""ArrayRecordWriter: a RecordWriter without kernels.

A record is pieces: numbers as varints between the bytes of key and value. All pieces of all records are
taken, in one call of Arrow's, from one array that has keys and values behind a table of varints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.byte_pieces import regrouped
from onceflow.connectors.kafka.record_writing import WrittenRecords
from onceflow.connectors.kafka.varints import varint_bytes, varints
from onceflow.runtime.arrow_offsets import offsets_of
from onceflow.runtime.records import Int64s

_NO_ATTRIBUTES = _NO_DELTA = _NO_HEADERS = b"\0"
_RECORD_BYTES_MIN = 7
"""Of a record without its key, value and headers."""


class ArrayRecordWriter:
    """See RecordWriter. The records of all runs are written at once, for NumPy takes as long for a few as for
    a hundred."""

    def __init__(self) -> None:
        self._rows: pa.RecordBatch | None = None
        self._now_ms = 0
        self._least_ends: Int64s | None = None

    def take(self, rows: pa.RecordBatch, now_ms: int) -> None:
        self._rows, self._now_ms = rows, now_ms
        self._least_ends = None

    def write(self, runs: Sequence[tuple[int, int]], room: int) -> list[WrittenRecords]:
        assert self._rows is not None, "rows were taken"
        runs = self._narrowed(self._rows, runs, room)
        rows = _rows_of(self._rows, runs)
        counts = np.array([stop - start for start, stop in runs])
        firsts = np.cumsum(counts) - counts
        times = None
        if rows["timestamp"].null_count < rows.num_rows:
            times = rows["timestamp"].fill_null(self._now_ms).to_numpy()
        records = _records(rows, times, counts, firsts)
        ends, data = offsets_of(records), records.buffers()[2]
        found = []
        for (start, _), first, count in zip(runs, firsts.tolist(), counts.tolist(), strict=True):
            at = int(ends[first])
            if ends[first + count] - at > room:
                fitting = int(np.searchsorted(ends[first : first + count + 1], at + room, "right")) - 1
                count = max(fitting, 1)
            size = int(ends[first + count]) - at
            content = pa.foreign_buffer(data.address + at, size, data)
            own = None if times is None else times[first : first + count]
            first_ms = self._now_ms if own is None else int(own[0])
            latest_ms = self._now_ms if own is None else int(own.max())
            found.append(WrittenRecords(content, start + count, first_ms, latest_ms))
        return found

    def _narrowed(
        self, rows: pa.RecordBatch, runs: Sequence[tuple[int, int]], room: int
    ) -> Sequence[tuple[int, int]]:
        """Without rows of which it is plain that there is no room for them."""
        if self._least_ends is None:
            least = np.maximum(_lengths(rows["key"]), 0) + np.maximum(_lengths(rows["value"]), 0)
            self._least_ends = np.append(0, np.cumsum(least + _RECORD_BYTES_MIN))
        ends = self._least_ends
        if ends[-1] <= room:
            return runs
        return [
            (start, min(stop, max(start + 1, int(np.searchsorted(ends, ends[start] + room, "right")))))
            for start, stop in runs
        ]


def _rows_of(rows: pa.RecordBatch, runs: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    """The rows of these runs, one behind the other."""
    first, end = runs[0][0], runs[-1][1]
    if sum(stop - start for start, stop in runs) == end - first:
        return rows.slice(first, end - first)
    return pa.concat_batches([rows.slice(start, stop - start) for start, stop in runs])


def _records(
    rows: pa.RecordBatch, times: Int64s | None, counts: Int64s, firsts: Int64s
) -> pa.LargeBinaryArray:
    """A record for each row, numbered from 0 in each of the runs, and with a time relative to its first."""
    count = rows.num_rows
    number = np.arange(count) - np.repeat(firsts, counts)
    lengths = varint_bytes(number) + len(_NO_ATTRIBUTES)
    behind_length = _NO_ATTRIBUTES
    pieces: list[_Piece] = []
    if times is None:
        behind_length += _NO_DELTA
        lengths += len(_NO_DELTA)
    else:
        delta = times - np.repeat(times[firsts], counts)
        lengths += varint_bytes(delta)
        pieces.append(varints(delta))
    pieces.append(varints(number))
    for name in ("key", "value"):
        sizes, field = _field(rows[name])
        lengths += sizes
        pieces += field
    if rows["headers"].null_count < count:
        headers = _headers(rows["headers"])
        lengths += _lengths(headers)
        pieces.append((headers, np.arange(count)))
    else:
        lengths += len(_NO_HEADERS)
        pieces.append(_same(_NO_HEADERS))
    return _joined(count, [varints(lengths, behind_length), *pieces])


def _headers(headers: pa.ListArray) -> pa.LargeBinaryArray:
    """Of each record, with their count."""
    if headers.null_count:  # a null may lie over headers that are not its own
        headers = headers.fill_null(pa.scalar([], headers.type))
    starts = offsets_of(headers)
    first = int(starts[0])
    names, values = headers.values.slice(first, int(starts[-1]) - first).flatten()
    names = names.fill_null("").cast(pa.large_binary())  # as librdkafka gets them: Kafka has no null there
    values = values.cast(pa.large_binary())
    pieces: list[_Piece] = []
    counted = varints(np.diff(starts).astype(np.int64))
    if len(names):
        each = _joined(len(names), [*_field(names)[1], *_field(values)[1]])
        of_row = regrouped(each, starts - first)
        pieces.append((of_row, np.arange(len(headers))))
    return _joined(len(headers), [counted, *pieces])


_Piece = tuple[pa.LargeBinaryArray, "npt.NDArray[np.int64] | int"]
"""Bytes, and for each record which of them."""


def _field(values: pa.LargeBinaryArray) -> tuple[Int64s, list[_Piece]]:
    """Bytes behind their length: how many that are, and the pieces."""
    lengths = _lengths(values)
    pieces: list[_Piece] = [varints(lengths)]
    if values.null_count < len(values):
        pieces.append((values, np.arange(len(values))))
    return varint_bytes(lengths) + np.maximum(lengths, 0), pieces


def _same(piece: bytes) -> _Piece:
    return pa.array([piece], pa.large_binary()), 0


def _lengths(values: pa.LargeBinaryArray) -> Int64s:
    """-1: a null."""
    count = len(values)
    if values.null_count == count:  # as the keys of a topic without keys are
        return np.full(count, -1)
    offsets = offsets_of(values)
    lengths: Int64s = offsets[1:] - offsets[:-1]
    if values.null_count:
        lengths[values.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def _joined(count: int, pieces: Sequence[_Piece]) -> pa.LargeBinaryArray:
    """For each of so many records its pieces, one behind the other. A null is no bytes."""
    chosen = np.empty((count, len(pieces)), np.int64)
    first = 0
    for number, (values, which) in enumerate(pieces):
        chosen[:, number] = which + first
        first += len(values)
    every = pa.concat_arrays([values for values, _ in pieces])
    taken = pc.take(every, pa.array(chosen.reshape(-1)), boundscheck=False)
    ends = np.ascontiguousarray(offsets_of(taken)[:: len(pieces)])
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(ends), taken.buffers()[2]])
