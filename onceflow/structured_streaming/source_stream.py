"""StreamPlanner: what Spark asks of a stream between two micro-batches, answered from Kafka.

Spark writes the end of a batch to its checkpoint before the batch is read, and hands it back as the next
start. Only what is written there survives: the answer to "where does the query begin?" is not, until the
first batch is. So a beginning that moves with time ("latest", a new partition) becomes the end of an empty
batch before anything is read from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from onceflow.connectors.kafka.metadata import PartitionKey, Topic
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import DataLossError
from onceflow.structured_streaming.source_offsets import (
    OffsetRange,
    Offsets,
    combine_ranges,
    limit_offsets,
    split_ranges,
)
from onceflow.structured_streaming.source_options import SourceOptions
from onceflow.structured_streaming.source_planning import Available, Planner

DISCOVERY_INTERVAL_MS = 1_000
"""How often a query that has nothing to read looks for new partitions and lost topics; one that has
something looks before each batch."""

TASK_OFFSETS = 25_000
"""Partitions that have no more than this together are read by one task: to start a task takes longer than
to read so few records."""
SLOW_BATCH_MS = 1_000
APART_MS = 10_000
"""After a batch that took longer than SLOW_BATCH_MS each partition has its own task for so long: the time may
be that of the query's work on the records, which more tasks share."""
_COLD_BATCHES = 2
"""Batches that are slow since processes start."""


class StreamPlanner:
    """Plans the batches of one run of a query, in the driver. Errors as Planner's; a call that raised may be
    repeated."""

    def __init__(self, options: SourceOptions, planner: Planner, clock: Clock) -> None:
        self._options = options
        self._planner = planner
        self._clock = clock
        self._initial: Offsets | None = None
        self._is_initial_written = False
        self._planned: Offsets | None = None
        self._target: Mapping[PartitionKey, int] | None = None
        self._seen: Offsets | None = None
        self._topics: dict[str, Topic] = {}
        self._topics_at_ms: float | None = None
        self._batches = 0
        self._batch_began_ms: float | None = None
        self._apart_until_ms = 0.0

    @property
    def seen(self) -> Offsets | None:
        """The end of all there was when it was last asked for."""
        return self._seen

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins. The same answer throughout this run."""
        if self._initial is None:
            self._initial = self._planner.initial()
        return self._initial

    def latest(self, start: Offsets, offsets_max: int | None) -> Offsets:
        """The end of the next batch: as far as there is something, or as the limit and the target allow.
        `start` itself if there is nothing to do."""
        self._note_end_of_batch()
        if start == self._initial and self._planner.begins_at_end and not self._is_initial_written:
            self._is_initial_written = True
            self._planned = start
            return start
        available = self._available(start)
        self._seen = Offsets(available.ends, available.topic_ids)
        starts = available.starts
        ends: dict[PartitionKey, int] = {}
        for key, end in available.ends.items():
            if key in available.new:
                if self._target is None or key in self._target:
                    ends[key] = starts[key]  # written down first, read by the batch after
            elif self._target is None:
                ends[key] = end
            else:
                ends[key] = min(end, max(starts[key], self._target.get(key, 0)))
        if offsets_max is not None:
            ends = limit_offsets(starts, ends, offsets_max)
        names = {topic for topic, _ in ends}
        ids = {n: i for n, i in available.topic_ids.items() if n in names}
        self._planned = Offsets(ends, ids, _epochs(ends, available, start))
        return self._planned

    def latest_of_all(self) -> Offsets:
        """The end of everything, for a Spark that does not say where the batch starts.

        Such a Spark asks this before `initial`: a query that begins at the end begins here.
        """
        topics = self._planner.topics()
        available = self._planner.available(Offsets({}), topics)
        epochs = _epochs(available.ends, available, self._planned or Offsets({}))
        self._planned = self._seen = Offsets(available.ends, available.topic_ids, epochs)
        if self._planner.begins_at_end and self._initial is None and self._options.start == "latest":
            self._initial = self._planned
        return self._planned

    def stop_at_present(self) -> None:
        """Let the query end with what is there now (Trigger.AvailableNow)."""
        available = self._planner.available(Offsets({}), self._planner.topics())
        self._target = available.ends

    def tasks(self, start: Offsets, end: Offsets) -> list[tuple[OffsetRange, ...]]:
        """The tasks of a batch: of one just planned, or of one that the checkpoint has from before."""
        if end != self._planned:
            self._planner.check(start, end)
        ranges = self._planner.ranges(start, end)
        if start == self._initial and not self._planner.begins_at_end and self._options.fail_on_data_loss:
            _refuse_lost(ranges)
        pieces = split_ranges(ranges, self._options.partitions_min, self._options.records_max)
        now_ms = self._clock.monotonic_ms()
        self._batches += 1
        self._batch_began_ms = now_ms
        if self._options.partitions_min is not None or now_ms < self._apart_until_ms:
            return [(each,) for each in pieces]
        return combine_ranges(pieces, min(TASK_OFFSETS, self._options.records_max or TASK_OFFSETS))

    def _note_end_of_batch(self) -> None:
        """Spark asks for the next end when a batch is done, or later if a trigger has it wait."""
        if self._batch_began_ms is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self._batches > _COLD_BATCHES and now_ms - self._batch_began_ms > SLOW_BATCH_MS:
            self._apart_until_ms = now_ms + APART_MS
        self._batch_began_ms = None

    def _available(self, start: Offsets) -> Available:
        """What can be read. Topics are looked up if there is anything new in them, or when it is time to
        look."""
        now = self._clock.monotonic_ms()
        if self._topics_at_ms is not None and now - self._topics_at_ms < DISCOVERY_INTERVAL_MS:
            available = self._planner.available(start, self._topics)
            if available.ends == start.next_offset and not available.new:
                return available
        self._topics_at_ms = None  # what is known is not trusted any more, should the next line fail
        self._topics = self._planner.topics({topic for topic, _ in start.next_offset})
        available = self._planner.available(start, self._topics)
        self._topics_at_ms = now
        return available


def _epochs(
    ends: Mapping[PartitionKey, int], available: Available, before: Offsets
) -> dict[PartitionKey, int]:
    """The leaders' epochs of a batch's ends. Where nothing is read the one from before stays: a new leader is
    nothing new to read, and says nothing of what was read."""
    epochs = {key: available.leader_epochs[key] for key in ends if key in available.leader_epochs}
    for key in ends:
        if ends[key] == before.next_offset.get(key):
            epochs.pop(key, None)
            if key in before.leader_epochs:
                epochs[key] = before.leader_epochs[key]
    return epochs


def _refuse_lost(ranges: list[OffsetRange]) -> None:
    """The first batch again, after a crash: its beginning was not written down, its end was."""
    for each in ranges:
        if each.size < 0:
            raise DataLossError(
                f"the first batch was to end at offset {each.stop_offset} of {each.topic}-{each.partition}, "
                f"and the first record there is now {each.next_offset}: the others were deleted before they "
                "could be read; to go on with what is there, set failOnDataLoss to false"
            )
