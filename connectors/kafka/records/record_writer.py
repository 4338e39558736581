"""RecordWriter: rows in PRODUCE_SCHEMA as the records of Kafka's record batches, version 2 (KIP-98), by a
kernel. Import only if kernels are enabled.

`records/read_kernels.py` reads what is written here; its docstring says how records look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.kafka.records import write_kernels as kernels
from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.records import Int64s


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """The records of one batch, without its header."""

    content: pa.Buffer
    """The bytes of the records, not compressed."""
    after: int
    """The row that follows on the last one written."""
    first_ms: int
    """The time of the first one, to which those of the others are relative."""
    latest_ms: int


@dataclass(frozen=True, slots=True)
class _Column:
    """Texts or bytes as the kernel takes them."""

    starts: npt.NDArray[Any]
    """int32 or int64: where each begins; one longer than there are."""
    data: int
    """The address of the bytes."""
    end: int
    """Where the memory ends that holds them."""
    nulls: npt.NDArray[np.bool_] | None
    owner: Any
    """Keeps the bytes alive."""

    @staticmethod
    def of(values: Any) -> _Column:
        count, data = len(values), values.buffers()[2]
        nulls = None
        if values.null_count == count:  # as the keys of a topic without keys are
            nulls = np.ones(count, np.bool_)
        elif values.null_count:
            nulls = values.is_null().to_numpy(zero_copy_only=False)
        address, size = (0, 0) if data is None else (data.address, data.size)
        return _Column(offsets_of(values), address, address + size, nulls, values)

    def addresses(self) -> tuple[int, int, int, int]:
        nulls = 0 if self.nulls is None else self.nulls.ctypes.data
        return self.starts.ctypes.data, self.data, nulls, self.end


class _RowBytes:
    """Rows as the kernel takes them: nothing of them is copied."""

    def __init__(self, rows: pa.RecordBatch, now_ms: int) -> None:
        count = rows.num_rows
        self._key, self._value = _Column.of(rows["key"]), _Column.of(rows["value"])
        self._now_ms = now_ms
        self._times: Int64s | None = None
        if rows["timestamp"].null_count < count:
            self._times = rows["timestamp"].fill_null(now_ms).to_numpy()
        self._header_starts: npt.NDArray[np.int32] | None = None
        self._name = self._header_value = _Column(np.zeros(1, np.int32), 0, 0, None, None)
        if rows["headers"].null_count < count:
            self._take_headers(rows["headers"])
        times = 0 if self._times is None else self._times.ctypes.data
        header_starts = 0 if self._header_starts is None else self._header_starts.ctypes.data
        self.columns = np.array(
            [
                *self._key.addresses(),
                *self._value.addresses(),
                *self._name.addresses(),
                *self._header_value.addresses(),
                times,
                header_starts,
            ],
            np.int64,
        )
        """What kernels.write_records takes."""
        self._largest_max: int | None = None

    def time_ms(self, row: int) -> int:
        return self._now_ms if self._times is None else int(self._times[row])

    def latest_ms(self, latest_own_ms: int) -> int:
        """The latest time of a batch, given the latest of its rows' own times (unused if rows have none)."""
        return self._now_ms if self._times is None else latest_own_ms

    def bytes_max(self, start: int, stop: int) -> int:
        """The most bytes that these rows may take as records."""
        size = sum(int(c.starts[stop] - c.starts[start]) for c in (self._key, self._value))
        size += kernels.RECORD_BYTES_MAX * (stop - start)
        if self._header_starts is not None:
            size += int(self._headers_max()[start:stop].sum())
        return size

    def largest_max(self) -> int:
        """The most bytes that the largest of all rows may take."""
        if self._largest_max is None:  # asked for each batch
            sizes = sum(c.starts[1:] - c.starts[:-1] for c in (self._key, self._value))
            if self._header_starts is not None:
                sizes = sizes + self._headers_max()
            self._largest_max = int(np.max(sizes)) + kernels.RECORD_BYTES_MAX
        return self._largest_max

    def _headers_max(self) -> Int64s:
        """The most bytes that the headers of each row may take."""
        assert self._header_starts is not None, "there are headers"
        each = np.diff(self._name.starts) + np.diff(self._header_value.starts) + kernels.HEADER_BYTES_MAX
        ends = np.append(0, np.cumsum(each, dtype=np.int64))
        return np.diff(ends[self._header_starts])

    def _take_headers(self, headers: pa.ListArray) -> None:
        if headers.null_count:  # a null may lie over headers that are not its own
            headers = headers.fill_null(pa.scalar([], headers.type))
        self._header_starts = offsets_of(headers)
        names, values = headers.values.flatten()
        names = names.fill_null("")  # as librdkafka gets them: Kafka has no null there
        self._name, self._header_value = _Column.of(names), _Column.of(values)


class RecordWriter:
    """Writes records of one RecordBatch after the other, into one buffer again and again: fresh pages cost
    more than the filling. One thread."""

    def __init__(self) -> None:
        self._rows: _RowBytes | None = None
        self._buffer = np.zeros(0, np.uint8)
        self._written: Int64s = np.zeros(3, np.int64)

    def take(self, rows: pa.RecordBatch, now_ms: int) -> None:
        """What is written from now on. `now_ms`: the time of rows that have no timestamp."""
        self._rows = _RowBytes(rows, now_ms)

    def write(self, runs: Sequence[tuple[int, int]], room: int) -> list[WrittenRecords]:
        """Write the first rows of each of these runs (start, stop), in order and not empty: as many as fit
        into `room` bytes, the first one in any case. The bytes are valid until the next call."""
        rows = self._rows
        assert rows is not None, "rows were taken"
        self._reserve(rows, runs, room)
        found, at = [], self._buffer.ctypes.data
        for start, stop in runs:
            kernels.write_records(at, room, start, stop, rows.columns, self._written)
            after, end, latest_own_ms = self._written.tolist()
            content = pa.foreign_buffer(at, end - at, self._buffer)
            found.append(WrittenRecords(content, after, rows.time_ms(start), rows.latest_ms(latest_own_ms)))
            at = end
        return found

    def _reserve(self, rows: _RowBytes, runs: Sequence[tuple[int, int]], room: int) -> None:
        """Have room for a batch of each run."""
        size = 0
        for start, stop in runs:
            run = rows.bytes_max(start, stop)
            size += run if run <= room else min(run, room + rows.largest_max())
        if size + kernels.SLACK > len(self._buffer):
            self._buffer = np.empty(size + kernels.SLACK, np.uint8)
