"""The task whose head reads splits: polls, event time, watermarks, and where to go on at a barrier.

See task.py for the order at a barrier and for what a step is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    AcknowledgingReader,
    Fetch,
    ForgettingReader,
    PausableReader,
    PruningSource,
    SourceReader,
    SplitProgress,
)
from onceflow.runtime.contracts.batch_size import BatchSize
from onceflow.runtime.graph.job_graph import SourceNode
from onceflow.runtime.records import Barrier, EndOfInput, Idle, Origin, Records, Watermark
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.event_time import SourceWatermarks, event_times, said_of_silent
from onceflow.runtime.slot.own_watermarks import rule_of
from onceflow.runtime.slot.source_rate import SourceRate
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot
from onceflow.runtime.slot.watermark_alignment import AlignedSplits, Lowest, lowest

DEAD_LETTERS = "dead-letters"
"""The tag of a source's output for records that it could not decode."""


class SourceTask:
    """A task whose head reads splits."""

    def __init__(
        self,
        node: SourceNode,
        reader: SourceReader,
        body: ChainBody,
        clock: Clock,
        counters: TaskCounters,
        on_snapshot: Callable[[TaskSnapshot], None],
        rate: SourceRate | None = None,
        halts: bool = False,
    ) -> None:
        """`halts`: it reads nothing from a barrier on until all slots have their snapshots."""
        self.uid = node.uid
        self.counters = counters
        self._node = node
        self._rate = rate
        self._reader = reader
        self._body = body
        self._clock = clock
        self._on_snapshot = on_snapshot
        self._output = body.outlet(node.outputs)
        self._batch_size = BatchSize()
        self._watermarks = SourceWatermarks(node.watermarks) if node.watermarks else None
        self._rule = rule_of(node.watermarks, node.uid) if node.watermarks else None
        alignment = node.watermarks.alignment if node.watermarks else None
        self._aligned = AlignedSplits(alignment) if alignment else None
        self._finished: dict[str, bool] = {}
        self._barriers: list[Barrier] = []
        self._said_idle = False
        self._said_end = False
        self._is_draining = False
        self._has_stopped = False
        self._halts = halts
        self._halted_at: int | None = None
        """The checkpoint for which it stands still."""

    @property
    def is_drained(self) -> bool:
        return self._body.has_ended

    @property
    def may_read(self) -> bool:
        """Whether it may ask its reader for rows: it goes on, and no operator behind it has enough to ask."""
        return not self._body.has_ended and self._body.admits_rows

    @property
    def wake_at_ms(self) -> int | None:
        return None if self._has_stopped else self._body.firing.wake_at_ms

    def add_splits(self, splits: Sequence[SplitProgress]) -> None:
        """At the start of an attempt, and when new splits were found while running."""
        for progress in splits:
            split_id = progress.split.split_id
            self._finished[split_id] = progress.is_finished
            if self._watermarks:
                self._watermarks.add_split(split_id, progress.max_event_time_ms, progress.is_finished)
        self._reader.add_splits([p.split for p in splits])

    def trigger(self, barrier: Barrier) -> None:
        """The coordinator wants a checkpoint: the barrier goes out at the next step."""
        self._barriers.append(barrier)

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        self._barriers = [b for b in self._barriers if b.checkpoint_id != checkpoint_id]
        self.resume(checkpoint_id)

    def resume(self, checkpoint_id: int) -> None:
        """All slots have their snapshots of this checkpoint, or it will not be: go on reading."""
        if self._halted_at is not None and self._halted_at <= checkpoint_id:
            self._halted_at = None

    def drain(self) -> None:
        """End as if the input had ended here: nothing more is read. The splits keep their positions."""
        self._is_draining = True

    def checkpoint_completed(self, splits: Sequence[SplitProgress]) -> None:
        """The checkpoint that has these is durable, and committed by this slot."""
        if self._node.leaves_traces:
            self._reader.publish_offsets([p.split for p in splits])
        if isinstance(self._node.source, PruningSource):
            self._forget({p.split.split_id for p in splits if p.is_finished})

    def _forget(self, split_ids: set[str]) -> None:
        """The driver has taken them out of that checkpoint: they must not come back with the next one."""
        forgotten = split_ids & self._finished.keys()
        for split_id in forgotten:
            del self._finished[split_id]
            if self._watermarks:
                self._watermarks.forget(split_id)
            if self._rule:
                self._rule.forget(split_id)
        if isinstance(self._reader, ForgettingReader):
            self._reader.forget_splits(forgotten)

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """Leave these unread until they are resumed; they hold the watermark meanwhile, and are never idle.
        The reader has to be a PausableReader."""
        assert isinstance(self._reader, PausableReader), self._reader
        self._reader.pause_splits(split_ids)
        if self._watermarks:
            self._watermarks.pause(split_ids)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """Go on reading these where they were."""
        assert isinstance(self._reader, PausableReader), self._reader
        self._reader.resume_splits(split_ids)
        if self._watermarks:
            self._watermarks.resume(split_ids)

    @property
    def paused(self) -> str:
        """Which splits wait for slower ones, for people; "": none. From any thread."""
        return self._aligned.describe(self.uid) if self._aligned and self.counters.paused_splits else ""

    @property
    def silent(self) -> str:
        """Which splits hold event time without a record to read, for people; "": none. From any thread."""
        if self._watermarks is None or self._said_end or self._has_stopped:
            return ""
        return said_of_silent(self.uid, self._watermarks.silent(self._clock.monotonic_ms()))

    @property
    def lowest_watermark(self) -> Lowest:
        """How far the slowest split is, by the alignment group; empty for a source in none."""
        if self._aligned is None or self._watermarks is None:
            return {}
        is_over = self._said_end or self._has_stopped
        watermarks: list[int | None] = [] if is_over else [*self._watermarks.of_splits().values()]
        return {self._aligned.group: lowest(watermarks)}

    def align(self, lowest_of: Lowest) -> None:
        """The driver says how far the slowest split of each group is. The next poll goes by it."""
        if self._aligned is not None and self._aligned.group in lowest_of:
            self._aligned.lowest_ms = lowest_of[self._aligned.group]

    def _pause_or_resume(self) -> None:
        if self._aligned is None or self._watermarks is None:
            return
        turn = self._aligned.turn(self._watermarks.of_splits())
        if turn.pause:
            self.pause_splits(turn.pause)
        if turn.resume:
            self.resume_splits(turn.resume)
        self.counters.paused_splits = len(self._aligned.paused)

    def step(self) -> bool:
        if self._barriers and self._body.may_snapshot:
            self._on_barrier(self._barriers.pop(0))
            return True
        if not self._body.has_room:
            return False
        if self._body.has_ended or self._has_stopped or self._halted_at is not None:
            return False
        if self._body.firing.is_due:
            self._body.firing.advance()
            return True
        if not self._body.admits_rows or self._said_end:
            return False
        if self._is_draining:
            self._end()
            return True
        self._pause_or_resume()
        fetch = self._poll()
        if fetch is not None:
            self._on_fetch(fetch)
        moved = self._advance_event_time()
        if self._is_finished:
            self._end()
            return True
        return moved or fetch is not None

    def _end(self) -> None:
        self._said_end = True
        self.counters.paused_splits = 0
        self._body.firing.take(EndOfInput())

    def _poll(self) -> Fetch | None:
        now_ms = self._clock.monotonic_ms()
        allowed = None if self._rate is None else self._rate.allowed(now_ms)
        if allowed == 0:
            return None  # a rate limit stops reading, and neither barriers nor what fires
        room = self._body.rows_max(self.counters.records_in)
        limits = (self._batch_size.ask(now_ms), allowed, room, self._body.firing.rows_at_once)
        fetch = self._reader.poll(0, min(limit for limit in limits if limit is not None))
        if fetch is not None:
            self._batch_size.took(fetch.records.num_rows)
            if self._rate is not None:
                self._rate.took(fetch.records.num_rows)
        return fetch

    def _on_fetch(self, fetch: Fetch) -> None:
        for split_id in fetch.finished:
            self._finished[split_id] = True
        times = None
        if self._watermarks and self._node.watermarks:
            is_clocks = self._node.watermarks.is_ingestion_time
            if is_clocks:
                times = self._watermarks.read_at(fetch, self._clock.now_ms())
            else:
                times = event_times(fetch, self._node.watermarks, self._node.uid)
            if self._rule is None:
                self._watermarks.observe(fetch, times)
            else:
                self._watermarks.observe_told(fetch, self._rule.watermarks(fetch, times))
            if not is_clocks:  # what the source knows is of another time
                self._watermarks.punctuate(fetch.watermarks)
            self._watermarks.at_end(fetch.at_end, self._clock.monotonic_ms())
            self._watermarks.finish(fetch.finished)
            if len(times):
                self.counters.max_event_time_ms = max(self.counters.max_event_time_ms, int(times.max()))
                self._become_active()
        self.counters.records_in += fetch.records.num_rows
        origin = None
        if self._node.with_origin:
            assert fetch.offset is not None, "the reader was opened with_origin"
            origin = Origin(fetch.splits, fetch.row_split, fetch.offset)
        self._output.emit(Records(fetch.records, times, None, origin, fetch.kind))
        if fetch.dead_letters is not None:
            self.counters.dead_letters += fetch.dead_letters.num_rows
            self._output.emit(Records(fetch.dead_letters), DEAD_LETTERS)

    def _advance_event_time(self) -> bool:
        watermarks = self._watermarks
        if watermarks is None:
            return False
        if self._node.watermarks and self._node.watermarks.is_ingestion_time:
            watermarks.tick(self._clock.now_ms())
        grew = watermarks.advance(self._clock.monotonic_ms())
        if grew:
            self._become_active()
            self._body.firing.take(Watermark(watermarks.current_ms))
        if watermarks.is_idle and not self._said_idle:
            self._said_idle = True
            self._body.firing.take(Idle())
            return True
        if not watermarks.is_idle:
            self._become_active()  # a split that was found counts before its first record
        return grew

    def _become_active(self) -> None:
        """Send the watermark that ends idleness, so that this channel counts again before its records
        come."""
        if self._said_idle and self._watermarks:
            self._said_idle = False
            self._body.firing.take(Watermark(self._watermarks.current_ms))

    def _on_barrier(self, barrier: Barrier) -> None:
        if isinstance(self._reader, AcknowledgingReader):
            self._reader.on_barrier(barrier.checkpoint_id)
        progress = self._watermarks.progress() if self._watermarks else {}
        splits = [
            SplitProgress(s, progress.get(s.split_id), self._finished[s.split_id])
            for s in self._reader.snapshot()
            if s.split_id in self._finished
        ]
        snapshot = self._body.snapshot(barrier)
        self._has_stopped = self._has_stopped or barrier.is_last
        self._halted_at = barrier.checkpoint_id if self._halts else None
        self._on_snapshot(replace(snapshot, splits={self._node.uid: splits}))

    @property
    def _is_finished(self) -> bool:
        return self._node.source.is_bounded and all(self._finished.values())
