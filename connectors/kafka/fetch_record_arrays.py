"""RecordArrays: a SectionReader without kernels."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.formats.spans import READ_AHEAD, Spans
from onceflow.connectors.kafka.fetch import CREATE_TIME, Details, Fetched, Wanted
from onceflow.connectors.kafka.fetch_batch import headers_of
from onceflow.connectors.kafka.record_arrays import (
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

_OWN_REFERENCES = 2
"""To an array that only we have, when it is asked how many there are."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The records of sections that came together. By record, but for the headers."""

    content: Bytes
    """A copy of the sections' bytes."""
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
    """See SectionReader. The records of as many whole sections as are asked for are found at once, for NumPy
    takes as long for a few as for a hundred. A section may have more: they are remembered."""

    def __init__(self, wanted: Wanted, room: int) -> None:
        self._wanted = wanted
        self._with_headers = wanted.headers or wanted.details
        self._room = room
        self._memory: Bytes = np.zeros(0, np.uint8)
        """Of the chunk, and of each one after it that comes when nobody has this one any more: memory that is
        new costs more than what is done with it."""
        self._nothing = self._chunk_of([])
        self._chunk = self._nothing
        self._rows = np.zeros(0, np.int64)
        """Those that were handed on last."""

    def read(self, sections: Sequence[Section], records_max: int) -> tuple[Fetched, int]:
        if sections and sections[0].found is None:  # nor is any other
            self._find(_whole(sections, min(records_max, self._room)))
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
        self._chunk = self._nothing  # all of it was handed on
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
        content = self._room_for(bounds[-1] + READ_AHEAD)
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

    def _room_for(self, size: int) -> Bytes:
        """Whoever has values that lie there keeps the array, as does each view of it."""
        is_lent = sys.getrefcount(self._memory) > _OWN_REFERENCES
        if is_lent or size > len(self._memory):
            self._memory = np.zeros(size * 5 // 4, np.uint8)
        return self._memory

    def _fetched(self, rows: slice | Indices) -> Fetched:
        wanted, chunk, places = self._wanted, self._chunk, self._chunk.places
        return Fetched(
            value=self._spans(places.value_at[rows], places.value_bytes[rows]),
            row_split=chunk.split[rows],
            offset=chunk.offset[rows],
            key=self._spans(places.key_at[rows], places.key_bytes[rows]) if wanted.key else None,
            timestamp_ms=_chosen(chunk.time_ms, rows) if wanted.timestamp else None,
            time_kind=_chosen(chunk.time_kind, rows).astype(np.int8) if wanted.timestamp else None,
            headers=self._headers(self._rows) if wanted.headers else None,
            details=self._details if wanted.details else None,
        )

    def _spans(self, at: Int64s, lengths: Int64s) -> Spans:
        return Spans(self._chunk.content, at, lengths)

    def _headers(self, rows: Indices) -> pa.Array:
        found = self._chunk.headers
        assert found is not None, "wanted"
        first = np.searchsorted(found.row, rows)
        counts = np.searchsorted(found.row, rows, "right") - first
        starts = np.append(0, np.cumsum(counts)).astype(np.int32)
        chosen = np.repeat(first - starts[:-1], counts) + np.arange(starts[-1])
        names = self._spans(found.name_at[chosen], found.name_bytes[chosen]).to_binary()
        values = self._spans(found.value_at[chosen], found.value_bytes[chosen]).to_binary()
        if pa.large_binary() in (names.type, values.type):
            raise OverflowError(f"headers of {len(rows)} records have {names.nbytes + values.nbytes} bytes")
        return headers_of(starts, names, values)

    def _details(self, row: int) -> Details:
        assert row < len(self._rows), "details of the last fetch only"
        chunk, at = self._chunk, self._rows[row : row + 1]
        key = self._spans(chunk.places.key_at, chunk.places.key_bytes)[int(at[0])]
        (headers,) = self._headers(at).to_pylist()
        return Details(key, int(_chosen(chunk.time_ms, at)[0]), headers)


def _whole(sections: Sequence[Section], records_max: int) -> Sequence[Section]:
    """The first ones that are handed on together, one at least. Of one more there would be a rest, too few
    records for a fetch of their own."""
    ends = np.cumsum([section.fields[LEFT] for section in sections])
    return sections[: max(1, int(np.searchsorted(ends, records_max, "right")))]


def _chosen(column: Int64s | None, rows: slice | Indices) -> Int64s:
    assert column is not None, "wanted"
    return column[rows]
