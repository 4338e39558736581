"""WindowSides: the rows of two inputs by window, until both watermarks have passed its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins.frozen_sides import (
    TABLE,
    FrozenPart,
    FrozenSides,
    restored_rows,
)
from onceflow.runtime.operators.operator import OperatorContext, RestoredState
from onceflow.runtime.operators.two_keys import joint_keys, keys_of
from onceflow.runtime.records import Indices, Int64s, Records, UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys
from onceflow.runtime.state.operator_state import FrozenRows, restored_watermark
from onceflow.runtime.state.rows import take_rows
from onceflow.runtime.state.tables import Layout, keyed_table


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one side that are in the same window, in the order in which they came."""

    batch: pa.RecordBatch
    key_hash: UInt64s


@dataclass(frozen=True)
class EndedWindows:
    """Both sides of windows that have ended, each as one batch, the window that ends first before the
    others; of no window is only a part of a key here."""

    batches: tuple[pa.RecordBatch, pa.RecordBatch]
    starts: tuple[Int64s, Int64s]
    """Where the window of each row begins."""
    rows: tuple[Int64s, Int64s]
    """A number for the key and the window of each row, the same on both sides; those of left rows in the
    order of their windows."""

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    @cached_property
    def windows(self) -> Sequence[int]:
        """The starts of the windows."""
        starts: list[int] = np.unique(np.concatenate(self.starts)).tolist()
        return starts

    @cached_property
    def by_key(self) -> tuple[Indices, Indices]:
        """The rows of each side by the number of their key, one key's in the order in which they came."""
        first, second = (stable_order(rows) for rows in self.rows)
        return first, second

    def apart(self) -> Iterator[EndedWindows]:
        """Each window by itself."""
        for start in self.windows:
            (a, b), (c, d) = (np.searchsorted(its, (start, start + 1)).tolist() for its in self.starts)
            batches = (self.batches[0].slice(a, b - a), self.batches[1].slice(c, d - c))
            starts = (self.starts[0][a:b], self.starts[1][c:d])
            yield EndedWindows(batches, starts, (self.rows[0][a:b], self.rows[1][c:d]))


class WindowSides:
    """What two inputs have of the windows that are open."""

    def __init__(
        self,
        window: Tumbling | Sliding,
        schemas: Sequence[pa.Schema],
        keys: Sequence[Sequence[str]],
    ) -> None:
        self._window = window
        self._schemas = schemas
        self._keys = keys
        fields = [[s.field(name) for name in names] for names, s in zip(keys, schemas, strict=True)]
        self._key_schema = joint_keys(*fields)
        self._open: dict[int, tuple[list[Part], list[Part]]] = {}

    def __len__(self) -> int:
        return sum(part.batch.num_rows for sides in self._open.values() for its in sides for part in its)

    def add(self, side: int, records: Records, watermark_ms: int) -> Indices:
        """Put rows into all their windows that the watermark has not passed; those that are in none."""
        assert records.key_hash is not None, "a join comes after a key_by"
        is_in_one = np.zeros(len(records), np.bool_)
        for starts, rows in open_windows(self._window, records, watermark_ms):
            is_in_one[rows] = True
            self._add(side, records.batch, records.key_hash, starts, rows)
        return np.flatnonzero(~is_in_one)

    def next_ends(self, watermark_ms: int, rows_max: int) -> EndedWindows | None:
        """The first windows that end by then, with about so many rows, which are let go of; None: there is
        none."""
        parts: tuple[list[Part], list[Part]] = ([], [])
        starts: tuple[list[int], list[int]] = ([], [])
        count = 0
        for start in sorted(
            start for start in self._open if start + self._window.size_ms - 1 <= watermark_ms
        ):
            if count >= rows_max:
                break
            for side, its in enumerate(self._open.pop(start)):
                parts[side].extend(its)
                starts[side].extend([start] * len(its))
                count += sum(len(part.key_hash) for part in its)
        if not count:
            return None
        table = keyed_table(Layout(self._key_schema.names, self._key_schema, {}))
        batches, begins, rows = [], [], []
        for schema, names, its, of in zip(self._schemas, self._keys, parts, starts, strict=True):
            batch, key_hash = _joined(schema, its)
            begin = np.repeat(np.array(of, np.int64), [len(part.key_hash) for part in its])
            batches.append(batch)
            begins.append(begin)
            rows.append(table.find_or_add(keys_of(batch, names, self._key_schema), key_hash, begin))
        return EndedWindows((batches[0], batches[1]), (begins[0], begins[1]), (rows[0], rows[1]))

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """What is in open windows now; the window's start in the place of a time."""
        found: tuple[list[FrozenPart], list[FrozenPart]] = ([], [])
        for start, sides in self._open.items():
            for to, its in zip(found, sides, strict=True):
                to += [_FrozenWindow(part.batch, start) for part in its]
        return FrozenSides(found, self._schemas, self._keys, max_parallelism)

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        """The rows of these keys as `freeze` would give them; in no order. All keys are looked at."""
        found: tuple[list[FrozenPart], list[FrozenPart]] = ([], [])
        for start, sides in self._open.items():
            for side, its in enumerate(sides):
                found[side].extend(self._asked(asked, side, start, its))
        frozen = FrozenSides(found, self._schemas, self._keys, max_parallelism)
        asked.check_count(len(frozen))
        return [frozen.piece(0, len(frozen))]

    def open(self, context: OperatorContext) -> None:
        pass

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for side, batch, starts, _ in restored_rows(state.batches(TABLE), self._schemas):
                hashes = hash_keys(batch, list(self._keys[side]))
                self._add(side, batch, hashes, starts, np.arange(batch.num_rows))

    def close(self) -> None:
        pass

    def _asked(self, asked: AskedKeys, side: int, start: int, parts: Sequence[Part]) -> Iterator[FrozenPart]:
        """The rows of these keys among those of one side in one window; nothing if there are none."""
        if not parts:
            return
        ends = np.cumsum([len(part.key_hash) for part in parts])
        near = asked.near(np.concatenate([part.key_hash for part in parts]))
        number = np.searchsorted(ends, near, side="right")
        cuts = np.flatnonzero(np.diff(number, prepend=-1))
        found = [
            take_rows(parts[n].batch, rows - (int(ends[n]) - len(parts[n].key_hash)))
            for n, rows in zip(number[cuts].tolist(), np.split(near, cuts[1:]), strict=False)
        ]
        if found:
            batch, names = one_batch(pa.Table.from_batches(found)), list(self._keys[side])
            is_asked = asked.are(hash_keys(batch, names), hash_keys(batch, names, CHECK_SEED))
            yield _FrozenWindow(batch, start, np.flatnonzero(is_asked))

    def _add(self, side: int, batch: pa.RecordBatch, hashes: UInt64s, starts: Int64s, rows: Indices) -> None:
        """Windows next to each other share memory until the last of them has ended; others have their own, so
        that a row far ahead keeps no others in memory."""
        starts = starts[rows]
        is_whole = len(rows) == batch.num_rows
        if np.any(starts[1:] < starts[:-1]):
            order = stable_order(starts)
            starts, rows, is_whole = starts[order], rows[order], False
        ahead = np.flatnonzero(np.diff(starts) > self._window.slide_ms) + 1
        for near in np.split(np.arange(len(rows)), ahead):
            part = Part(batch, hashes)
            if not is_whole or len(ahead):
                part = Part(take_rows(batch, rows[near]), hashes[rows[near]])
            begins = np.flatnonzero(np.diff(starts[near], prepend=starts[near[0]] - 1))
            for first, end in pairwise([*begins.tolist(), len(near)]):
                its = Part(part.batch.slice(first, end - first), part.key_hash[first:end])
                self._open.setdefault(int(starts[near[first]]), ([], []))[side].append(its)


@dataclass(frozen=True, slots=True)
class _FrozenWindow:
    batch: pa.RecordBatch
    start: int
    rows: Indices | None = None
    """Some of the rows, lowest first; None: all."""
    is_matched: None = None
    beside: ClassVar[Mapping[str, Int64s]] = {}

    @property
    def time(self) -> Int64s:
        return np.full(self.batch.num_rows, self.start)

    def live(self) -> Indices:
        return np.arange(self.batch.num_rows) if self.rows is None else self.rows


def open_windows(
    window: Tumbling | Sliding, records: Records, watermark_ms: int
) -> Iterator[tuple[Int64s, Indices]]:
    """The starts of a window for each row, and the rows that are in it where the watermark has not passed it;
    for each of the windows that a row may be in."""
    assert records.event_time is not None, "a window join needs event time"
    size, slide = window.size_ms, window.slide_ms
    start = window.starts(records.event_time)
    for back in range(window.windows_max):
        starts = start - back * slide
        is_open = (starts + size > records.event_time) & (starts + (size - 1) > watermark_ms)
        if is_open.any():
            yield starts, np.flatnonzero(is_open)


def equal_rows(ended: EndedWindows) -> tuple[Int64s, Int64s]:
    """For each left row, in the order of `by_key[0]`, where the right rows of its key begin in `by_key[1]`,
    and how many there are."""
    left, right = ended.rows
    of_key = np.bincount(right, minlength=int(left.max(initial=-1)) + 1)
    asked = left[ended.by_key[0]]
    return (np.cumsum(of_key) - of_key)[asked], of_key[asked]


def groups(window: EndedWindows) -> Iterator[tuple[Indices, Indices]]:
    """The rows of each key of one window on both sides; one of the two may be empty."""
    count = 1 + max((int(rows.max()) for rows in window.rows if len(rows)), default=-1)
    ends: list[npt.NDArray[np.int64]] = []
    for rows in window.rows:
        ends.append(np.cumsum(np.bincount(rows, minlength=count)))
    starts = [0, 0]
    for key in range(count):
        stops = [int(end[key]) for end in ends]
        left, right = (order[a:b] for order, a, b in zip(window.by_key, starts, stops, strict=True))
        yield left, right
        starts = stops


def _joined(schema: pa.Schema, parts: Sequence[Part]) -> tuple[pa.RecordBatch, UInt64s]:
    if not parts:
        return pa.RecordBatch.from_pylist([], schema), np.zeros(0, np.uint64)
    if len(parts) == 1:
        return parts[0].batch, parts[0].key_hash
    batch = one_batch(pa.Table.from_batches([part.batch for part in parts]))
    return batch, np.concatenate([part.key_hash for part in parts])


def watermark_meta(metas: Sequence[Mapping[str, object]]) -> int:
    """The watermark of restored states."""
    return restored_watermark(min(int(str(meta["watermark"])) for meta in metas))
