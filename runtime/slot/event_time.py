"""Event time at a source: the column it comes from, and the watermark over splits. Pure.

A watermark per split, then the minimum over the splits of the subtask: reading a backlog at unequal
pace makes nothing late, and a record hours ahead in one split moves nothing while another still lags.
(Akidau et al., "The Dataflow Model", 2015, section 2.2; peers that keep one watermark per reader drop
records here without a word.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.contracts import Fetch, WatermarkStrategy
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Int64s


def event_times(fetch: Fetch, strategy: WatermarkStrategy, uid: str) -> Int64s:
    """Event time of each row, int64 ms. Raises Fatal naming the column if a row has none."""
    if strategy.event_time is None:
        assert fetch.timestamp_ms is not None, "the reader was opened with_timestamp"
        return fetch.timestamp_ms
    column = in_ms(fetch.records.column(strategy.event_time))
    if column.null_count:
        row = int(pc.index(pc.is_null(column), True).as_py())
        split = fetch.splits[int(fetch.row_split[row])]
        where = split if fetch.offset is None else f"{split} at offset {int(fetch.offset[row])}"
        raise Fatal(
            f"source {uid!r}: the event-time column {strategy.event_time!r} is null in a record of {where}: "
            "make the field required (then such records are bad records), or fill it before"
        )
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def in_ms(column: pa.Array) -> pa.Array:
    """A column of times as int64 in ms."""
    if not pa.types.is_timestamp(column.type):
        return column
    return column.cast(pa.timestamp("ms", tz=column.type.tz), safe=False).cast(pa.int64())


SILENT_AFTER_MS = 10_000
"""A split that has been at its end for so long, and is as far behind, is named."""
SHOWN_MAX = 5
TICK_MS = 200
"""How far ingestion time comes forward at once where no rows come."""


@dataclass(slots=True)
class _Split:
    """Progress of one split. `ended_at_ms`: since when (monotonic) it has been at its end."""

    max_event_time_ms: int | None = None
    ended_at_ms: float | None = None
    is_idle: bool = False
    is_finished: bool = False
    is_paused: bool = False
    """Left unread on purpose, so that nobody knows whether it is at its end."""


class SourceWatermarks:
    """The watermark of one source subtask: the minimum over its splits. Never goes back.

    A split without any record yet holds it at the minimum; a finished split does not count; a split
    that has been at its end for `idle_after_ms` does not count until its next record. When all are idle,
    those that have had records decide, else an empty split that went idle with them would hold them all.
    """

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self._strategy = strategy
        self._splits: dict[str, _Split] = {}
        self._looked_ms: float | None = None
        self.current_ms = WATERMARK_MIN_MS

    def add_split(self, split_id: str, max_event_time_ms: int | None, is_finished: bool) -> None:
        """At restore with what `progress` said, or for a new split with None."""
        self._splits[split_id] = _Split(max_event_time_ms, is_finished=is_finished)

    def observe(self, fetch: Fetch, times: Int64s) -> None:
        """Rows were read; called before they are sent on, watermarks after."""
        if not len(times):
            return
        # Rows come in runs of one split; a mask for each of many splits would cost more than decoding.
        starts = np.append(0, np.flatnonzero(np.diff(fetch.row_split)) + 1)
        highest = np.full(len(fetch.splits), WATERMARK_MIN_MS, np.int64)
        of_runs = fetch.row_split[starts]
        np.maximum.at(highest, of_runs, np.maximum.reduceat(times, starts))
        for index in set(of_runs.tolist()):
            split = self._splits[fetch.splits[index]]
            known = split.max_event_time_ms
            split.max_event_time_ms = int(highest[index] if known is None else max(known, highest[index]))
            split.ended_at_ms, split.is_idle = None, False

    def read_at(self, fetch: Fetch, now_ms: int) -> Int64s:
        """Ingestion time of each row of what was read now: the clock's, or that of the last row of its split
        if the clock has gone back since."""
        known = (self._splits[split_id].max_event_time_ms for split_id in fetch.splits)
        of_splits = [now_ms if latest is None else max(latest, now_ms) for latest in known]
        times: Int64s = np.array(of_splits, np.int64)[fetch.row_split]
        return times

    def tick(self, now_ms: int) -> None:
        """Nothing earlier comes any more in any split, by ingestion time. It is told in steps of TICK_MS, so
        that a quiet source does not send a watermark for each look at the clock."""
        for split in self._splits.values():
            known = split.max_event_time_ms
            if not split.is_finished and (known is None or now_ms - known >= TICK_MS):
                split.max_event_time_ms = now_ms

    def observe_told(self, fetch: Fetch, watermarks: Mapping[str, int]) -> None:
        """Rows were read that say how far event time has come, or of which the user's rule says it. In
        splits that are not in `watermarks` it stays."""
        for index in np.unique(fetch.row_split).tolist():
            split = self._splits[fetch.splits[index]]
            split.ended_at_ms, split.is_idle = None, False
        self.punctuate(watermarks)

    def punctuate(self, watermarks: Mapping[str, int]) -> None:
        """The source, its records or the user's rule say how far event time has come in these splits, which
        are not idle then. Kept as the highest event time that would give this watermark, so that a restore
        has it too."""
        for split_id, watermark_ms in watermarks.items():
            split = self._splits[split_id]
            event_time_ms = watermark_ms + self._strategy.out_of_orderness_ms + 1
            known = split.max_event_time_ms
            split.max_event_time_ms = event_time_ms if known is None else max(known, event_time_ms)
            split.ended_at_ms, split.is_idle = None, False

    def at_end(self, split_ids: Iterable[str], now_ms: float) -> None:
        """These splits have nothing more to read right now."""
        for split_id in split_ids:
            split = self._splits[split_id]
            if split.ended_at_ms is None and not split.is_paused:
                split.ended_at_ms = now_ms

    def pause(self, split_ids: Iterable[str]) -> None:
        """These are not read for now, and not idle either: they may have much to read."""
        for split_id in split_ids:
            split = self._splits[split_id]
            split.is_paused, split.is_idle, split.ended_at_ms = True, False, None

    def resume(self, split_ids: Iterable[str]) -> None:
        """These are read again; whether they are at their end is for the next poll to say."""
        for split_id in split_ids:
            self._splits[split_id].is_paused = False

    def finish(self, split_ids: Iterable[str]) -> None:
        """These bounded splits are read to their bound."""
        for split_id in split_ids:
            self._splits[split_id].is_finished = True

    def forget(self, split_id: str) -> None:
        """This split has finished and is left out of checkpoints from now on."""
        del self._splits[split_id]

    def advance(self, now_ms: float) -> bool:
        """Take in what happened since. True if `current_ms` grew."""
        self._find_idle(now_ms)
        unfinished = [s for s in self._splits.values() if not s.is_finished]
        counted = [s for s in unfinished if not s.is_idle]
        if not counted:
            counted = [s for s in unfinished if s.max_event_time_ms is not None]
        if not counted:
            return False
        lowest_ms = min(self._watermark_of(split) for split in counted)
        grew = lowest_ms > self.current_ms
        self.current_ms = max(self.current_ms, lowest_ms)
        return grew

    def _find_idle(self, now_ms: float) -> None:
        idle_after_ms = self._strategy.idle_after_ms
        if idle_after_ms is None:
            return
        # Nobody polled for so long (backpressure, a frozen process): what came meanwhile is not seen yet.
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        unseen_ms = 0.0 if looked_ms is None or now_ms - looked_ms <= idle_after_ms else now_ms - looked_ms
        for split in self._splits.values():
            if split.ended_at_ms is None:
                continue
            split.ended_at_ms = min(now_ms, split.ended_at_ms + unseen_ms)
            if now_ms - split.ended_at_ms >= idle_after_ms:
                split.is_idle = True

    @property
    def is_idle(self) -> bool:
        """Every split is idle or finished, and one at least is idle; or there is no split at all."""
        states = self._splits.values()
        return all(s.is_idle or s.is_finished for s in states) and not self.is_finished

    @property
    def is_finished(self) -> bool:
        return bool(self._splits) and all(s.is_finished for s in self._splits.values())

    def of_splits(self) -> Mapping[str, int]:
        """The watermark of each split that counts: that is neither idle nor finished."""
        return {
            split_id: self._watermark_of(split)
            for split_id, split in self._splits.items()
            if not (split.is_idle or split.is_finished)
        }

    def silent(self, now_ms: float) -> list[str]:
        """The splits that hold event time though there is nothing to read in them: those without a record,
        and those that are far behind another one of this subtask. From any thread."""
        splits = [(name, s) for name, s in list(self._splits.items()) if not (s.is_idle or s.is_finished)]
        furthest_ms = max((self._watermark_of(split) for _, split in splits), default=WATERMARK_MIN_MS)
        return sorted(
            split_id
            for split_id, split in splits
            if (ended_at_ms := split.ended_at_ms) is not None
            and now_ms - ended_at_ms >= SILENT_AFTER_MS
            and (
                split.max_event_time_ms is None or furthest_ms - self._watermark_of(split) >= SILENT_AFTER_MS
            )
        )

    def progress(self) -> Mapping[str, int | None]:
        """The highest event time of each split, for the snapshot."""
        return {split_id: split.max_event_time_ms for split_id, split in self._splits.items()}

    def _watermark_of(self, split: _Split) -> int:
        if split.max_event_time_ms is None:
            return WATERMARK_MIN_MS
        behind_ms = split.max_event_time_ms - self._strategy.out_of_orderness_ms - 1
        return min(max(behind_ms, WATERMARK_MIN_MS), WATERMARK_MAX_MS - 1)


def said_of_silent(uid: str, split_ids: Sequence[str]) -> str:
    """A sentence for people on why no window fires; "" if none of these is silent."""
    if not split_ids:
        return ""
    names, more = ", ".join(split_ids[:SHOWN_MAX]), len(split_ids) - SHOWN_MAX
    others = f" and {more} more" if more > 0 else ""
    return (
        f"source {uid!r}: event time waits for {names}{others}, where nothing comes: give its watermarks "
        "idle_after="
    )
