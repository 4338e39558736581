"""RecordArrays: a SectionReader without kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.kafka.fetch import CREATE_TIME, Details, Fetched, Wanted
from onceflow.connectors.kafka.fetch_batch import BINARY_BYTES_MAX, headers_of
from onceflow.connectors.kafka.record_arrays import (
    AHEAD,
    HeaderPlaces,
    RecordPlaces,
    find_headers,
    find_records,
)
from onceflow.connectors.kafka.record_sections import (
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
    Section,
    table_of,
)
from onceflow.connectors.kafka.record_starts import Bytes
from onceflow.runtime.records import Indices, Int64s, Mask


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The records of sections that came together. By record, but for the headers."""

    content: Bytes
    """A copy of the sections' bytes, until the next chunk."""
    places: RecordPlaces
    offset: Int64s
    time_ms: Int64s | None
    """There if wanted, as is the following."""
    time_kind: Int64s | None
    split: npt.NDArray[np.uint16]
    is_wanted: Mask
    headers: HeaderPlaces | None


@dataclass(slots=True)
class _Part:
    """What of a chunk is of one section and has not been handed on."""

    chunk: _Chunk
    first: int
    stop: int


class RecordArrays:
    """See SectionReader. The records of all sections that have come are found at once and then remembered,
    for NumPy takes as long for a few as for a hundred, and a section may have more than there is room for."""

    def __init__(self, wanted: Wanted, room: int, binary_bytes_max: int = BINARY_BYTES_MAX) -> None:
        """More bytes than binary_bytes_max in one column make it large_binary."""
        self._wanted = wanted
        self._with_headers = wanted.headers or wanted.details
        self._room = room
        self._binary_bytes_max = binary_bytes_max
        self._memory: Bytes = np.zeros(0, np.uint8)
        """Of the chunk, and of each one after it: memory that is new costs more than what is done with it."""
        self._chunk = self._chunk_of([])
        self._rows = np.zeros(0, np.int64)
        """Those that were handed on last."""

    def read(self, sections: Sequence[Section], records_max: int) -> tuple[Fetched, int]:
        if sections and sections[0].found is None:  # nor is any other
            self._find(sections)
        finished = 0
        chunk, first, stop = self._chunk, 0, 0
        for section in sections:
            part: _Part | None = section.found
            if section is sections[0] and part is not None:
                chunk, first, stop = part.chunk, part.first, part.first
            if part is None or part.first != stop:
                break  # what came later, or follows on some that was left out, is for the next fetch
            stop = part.first = min(part.stop, first + min(records_max, self._room))
            section.fields[LEFT] = part.stop - stop
            if stop < part.stop:
                break
            finished += 1
        is_wanted = chunk.is_wanted[first:stop]
        self._chunk = chunk
        self._rows = np.arange(first, stop) if is_wanted.all() else first + np.flatnonzero(is_wanted)
        return self._fetched(slice(first, stop) if is_wanted.all() else self._rows), finished

    def _find(self, sections: Sequence[Section]) -> None:
        chunk = self._chunk_of(sections)
        first = 0
        for section in sections:
            stop = first + int(section.fields[LEFT])
            section.found = _Part(chunk, first, stop)
            section.memory = None  # it was copied
            first = stop

    def _chunk_of(self, sections: Sequence[Section]) -> _Chunk:
        """Of sections of which nothing has been handed on; of any others all has."""
        table = table_of(sections)
        sizes, counts = table[:, END] - table[:, AT], table[:, LEFT]
        bounds = np.cumsum(np.append(1, sizes)).tolist()
        if bounds[-1] + AHEAD > len(self._memory):
            self._memory = np.zeros(bounds[-1] * 5 // 4 + AHEAD, np.uint8)
        content = self._memory
        for at, begin, end in zip(table[:, AT].tolist(), bounds, bounds[1:], strict=False):
            content[begin:end] = np.frombuffer(pa.foreign_buffer(at, end - begin), np.uint8)
        places = find_records(content, bounds, counts.tolist())

        def by_record(field: int) -> Int64s:
            return np.repeat(table[:, field], counts)

        offset = by_record(FIRST_OFFSET) + places.offset_delta
        time_ms, kind = None, None
        if self._wanted.timestamp or self._wanted.details:
            kind = by_record(TIME_KIND)
            created_ms = by_record(FIRST_TIME) + places.time_delta
            time_ms = np.where(kind == CREATE_TIME, created_ms, by_record(FIXED_TIME))
        return _Chunk(
            content,
            places,
            offset,
            time_ms,
            kind,
            by_record(SPLIT).astype(np.uint16),
            (offset >= by_record(WANTED_FROM)) & (offset < by_record(WANTED_TO)),
            find_headers(content, places.headers_at, places.end) if self._with_headers else None,
        )

    def _fetched(self, rows: slice | Indices) -> Fetched:
        wanted, chunk, places = self._wanted, self._chunk, self._chunk.places
        return Fetched(
            value=self._copies(places.value_at[rows], places.value_bytes[rows]),
            row_split=chunk.split[rows],
            offset=chunk.offset[rows],
            key=self._copies(places.key_at[rows], places.key_bytes[rows]) if wanted.key else None,
            timestamp_ms=_chosen(chunk.time_ms, rows) if wanted.timestamp else None,
            time_kind=_chosen(chunk.time_kind, rows).astype(np.int8) if wanted.timestamp else None,
            headers=self._headers(self._rows) if wanted.headers else None,
            details=self._details if wanted.details else None,
        )

    def _copies(self, at: Int64s, lengths: Int64s) -> pa.Array:
        return _copied(self._chunk.content, at, lengths, self._binary_bytes_max)

    def _headers(self, rows: Indices) -> pa.Array:
        found = self._chunk.headers
        assert found is not None, "wanted"
        first = np.searchsorted(found.row, rows)
        counts = np.searchsorted(found.row, rows, "right") - first
        starts = np.append(0, np.cumsum(counts)).astype(np.int32)
        chosen = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
        names = self._copies(found.name_at[chosen], found.name_bytes[chosen])
        values = self._copies(found.value_at[chosen], found.value_bytes[chosen])
        if pa.large_binary() in (names.type, values.type):
            raise OverflowError(f"headers of {len(rows)} records have {names.nbytes + values.nbytes} bytes")
        return headers_of(starts, names, values)

    def _details(self, row: int) -> Details:
        assert row < len(self._rows), "details of the last fetch only"
        chunk, at = self._chunk, self._rows[row : row + 1]
        (key,) = self._copies(chunk.places.key_at[at], chunk.places.key_bytes[at]).to_pylist()
        (headers,) = self._headers(at).to_pylist()
        return Details(key, int(_chosen(chunk.time_ms, at)[0]), headers)


def _chosen(column: Int64s | None, rows: slice | Indices) -> Int64s:
    assert column is not None, "wanted"
    return column[rows]


def _copied(content: Bytes, at: Int64s, lengths: Int64s, bytes_max: int) -> pa.Array:
    """What lies there, one behind the other, as binary; large_binary if it is more than bytes_max. A null has
    -1 bytes."""
    if not len(at):
        return pa.array([], pa.binary())
    is_null = lengths < 0
    ends = at + np.where(is_null, 0, lengths)
    # The even entries of an array over all of the content, whose odd ones are what lies between them.
    fits = len(content) <= BINARY_BYTES_MAX
    bounds: npt.NDArray[np.int32 | np.int64] = np.empty(2 * len(at), np.int32 if fits else np.int64)
    bounds[0::2], bounds[1::2] = at, ends
    arrow = pa.binary() if fits else pa.large_binary()
    entries = pa.Array.from_buffers(
        arrow, len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(content)]
    )
    found = entries.take(pa.array(np.arange(0, len(bounds), 2)))
    nulls = int(np.count_nonzero(is_null))
    if nulls:
        valid = pa.py_buffer(np.packbits(~is_null, bitorder="little"))
        found = pa.Array.from_buffers(arrow, len(at), [valid, *found.buffers()[1:]], nulls)
    large = int((ends - at).sum()) > bytes_max
    return found if large != fits else found.cast(pa.large_binary() if large else pa.binary())
