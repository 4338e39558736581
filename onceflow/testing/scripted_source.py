"""ScriptedSource: a source that reads what a test gives it, as exactly as a topic is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, ReaderContext, SourceReader, SplitEnumerator, SplitState
from onceflow.testing.script import At, Mark, Script

Choose = Callable[[int, str], int]
"""One of 0..n-1, for a reason that a trace can show."""

NEXT = "next_offset"
ROWS_MAX = 10_000


@dataclass(frozen=True)
class ScriptedSource:
    """Has a script's schema and splits. `choose` says which split comes next and how many rows; without it
    a read brings all that is there."""

    script: Script
    choose: Choose | None = None
    is_bounded: bool = True
    can_pause: bool = True

    @property
    def schema(self) -> pa.Schema:
        return self.script.schema

    @property
    def record_type(self) -> type | None:
        return self.script.record_type

    def open_enumerator(self, job: str, clock: Clock) -> SplitEnumerator:
        return _Enumerator(self.script)

    def open_reader(self, context: ReaderContext) -> SourceReader:
        return ScriptedReader(self.script, self.choose, context.with_timestamp)


class _Enumerator:
    discovery_interval_ms: int | None = None

    def __init__(self, script: Script) -> None:
        self._script = script

    def initial_splits(self) -> Sequence[SplitState]:
        return [SplitState(split, {NEXT: 0}) for split in self._script.splits]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


class ScriptedReader:
    """Brings one batch for each `credit` that it is given, so that other things happen in between."""

    def __init__(self, script: Script, choose: Choose | None, with_timestamp: bool) -> None:
        self._script = script
        self._choose = choose
        self._with_timestamp = with_timestamp
        self._next: dict[str, int] = {}
        self._finished: set[str] = set()
        self._paused: frozenset[str] = frozenset()
        self.credit = 0

    @property
    def has_more(self) -> bool:
        """Whether a poll would bring something."""
        return bool(self._open())

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._next[split.split_id] = split.position[NEXT]

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        open_ones = self._open()
        if not open_ones or self.credit == 0:
            return None
        self.credit -= 1
        split = open_ones[0 if self._choose is None else self._choose(len(open_ones), "split to read")]
        items, start = self._script.splits[split], self._next[split]
        rows_max = ROWS_MAX if self._choose is None else min(records_max, 1 + self._choose(3, "rows to read"))
        rows: list[At] = []
        watermarks: dict[str, int] = {}
        end = start
        for item in items[start:]:
            if isinstance(item, Mark):
                watermarks[split] = item.watermark_ms
                end += 1
                break
            if len(rows) == rows_max:
                break
            rows.append(item)
            end += 1
        self._next[split] = end
        has_finished = self._script.has_ended and end == len(items)
        if has_finished:
            self._finished.add(split)
        times = np.array([at.time_ms for at in rows], np.int64) if self._with_timestamp else None
        return Fetch(
            self._script.batch(rows),
            np.zeros(len(rows), np.uint16),
            (split,),
            offset=np.arange(start, start + len(rows), dtype=np.int64),
            timestamp_ms=times,
            finished=frozenset({split} if has_finished else ()),
            watermarks=watermarks,
        )

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(split, {NEXT: offset}) for split, offset in self._next.items()]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        self._paused |= frozenset(split_ids)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        self._paused -= frozenset(split_ids)

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass

    def _open(self) -> list[str]:
        return [
            split
            for split, offset in self._next.items()
            if split not in self._paused
            and (
                offset < len(self._script.splits[split])
                or (self._script.has_ended and split not in self._finished)
            )
        ]
