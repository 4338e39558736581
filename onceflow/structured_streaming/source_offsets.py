"""Offsets as Spark's checkpoint keeps them, and the arithmetic of a micro-batch: what it may read, and in
which tasks. Pure.

The form is that of Spark's own Kafka source, `{"events":{"0":17,"1":5}}`, so a query can change over to
onceflow with its checkpoint; beside it are the ids of the topics and the leaders' epochs, under names that
no topic can have.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.runtime.errors import Fatal

TOPIC_IDS = "#topic_ids"
LEADER_EPOCHS = "#leader_epochs"


@dataclass(frozen=True, slots=True)
class Offsets:
    """The first offset not yet read of each topic partition, and which topics they are of.

    `topic_ids` lacks a topic if Spark's own source wrote the checkpoint. `leader_epochs`: what lies before
    the offset was of this leader's epoch or an older one, by which a log that lost it is told from the one
    that was read (KIP-320); lacks a partition if nothing was read of it, or an older onceflow wrote it.
    """

    next_offset: Mapping[PartitionKey, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    leader_epochs: Mapping[PartitionKey, int] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Equal offsets are equal texts: Spark compares texts to see whether there is anything new."""
        written = _by_topic(self.next_offset)
        if self.topic_ids:
            written[TOPIC_IDS] = dict(sorted(self.topic_ids.items()))
        if self.leader_epochs:
            written[LEADER_EPOCHS] = _by_topic(self.leader_epochs)
        return written

    @staticmethod
    def from_json(written: Any) -> Offsets:
        """Raises Fatal if these are not offsets of this source."""
        try:
            ids = {str(topic): str(topic_id) for topic, topic_id in written.get(TOPIC_IDS, {}).items()}
            rest = {name: each for name, each in written.items() if name not in (TOPIC_IDS, LEADER_EPOCHS)}
            found = _by_partition(rest)
            epochs = _by_partition(written.get(LEADER_EPOCHS, {}))
        except (AttributeError, TypeError, ValueError) as error:
            raise Fatal(
                f"the checkpoint has {str(written)[:200]} where offsets of Kafka are expected: another "
                "source wrote it; give the query a checkpointLocation of its own"
            ) from error
        return Offsets(found, ids, epochs)


def _by_topic(numbers: Mapping[PartitionKey, int]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for topic, partition in sorted(numbers):
        written.setdefault(topic, {})[str(partition)] = numbers[topic, partition]
    return written


def _by_partition(written: Mapping[Any, Any]) -> dict[PartitionKey, int]:
    return {
        (str(topic), int(partition)): _offset(number)
        for topic, partitions in written.items()
        for partition, number in partitions.items()
    }


def _offset(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no offset")
    return value


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads of one topic partition: from next_offset up to, not with, stop_offset."""

    topic: str
    topic_id: str
    partition: int
    next_offset: int
    stop_offset: int
    leader_epoch: int | None = None
    """What lies before next_offset was of this leader's epoch or an older one. None: it is not known."""

    @property
    def size(self) -> int:
        """How many offsets; records may be fewer, since markers of transactions take offsets too."""
        return self.stop_offset - self.next_offset


def limit_offsets(
    starts: Mapping[PartitionKey, int], ends: Mapping[PartitionKey, int], offsets_max: int
) -> dict[PartitionKey, int]:
    """The ends of a batch of about `offsets_max` offsets, out of what there is from `starts` to `ends`.

    Each partition gives in proportion to what it has, and all run out in the same batch. So partitions
    of one age stay level in event time, and none closes the windows of another that lags behind. Each
    that has something gives at least one offset, so none is left behind for ever: a batch may be that
    much larger.
    """
    sizes = {key: max(0, end - starts[key]) for key, end in ends.items()}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(ends)
    limited = {}
    for key, size in sizes.items():
        share = offsets_max * size // total  # never the whole of a partition, since offsets_max < total
        limited[key] = min(starts[key] + max(share, 1), max(ends[key], starts[key])) if size else ends[key]
    return limited


def split_ranges(
    ranges: Sequence[OffsetRange], partitions_min: int | None, records_max: int | None
) -> list[OffsetRange]:
    """One task for each range that has something; more if the options ask for more.

    `partitions_min`: at least about that many tasks, larger ranges being cut into more pieces.
    `records_max`: no task has more offsets than that.
    """
    filled = [each for each in ranges if each.size > 0]
    if records_max is not None:
        filled = [piece for each in filled for piece in _cut(each, math.ceil(each.size / records_max))]
    if partitions_min is None or len(filled) >= partitions_min:
        return filled
    total = sum(each.size for each in filled)
    return [piece for each in filled for piece in _cut(each, round(partitions_min * each.size / total))]


def combine_ranges(ranges: Sequence[OffsetRange], offsets_max: int) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task, if one task may read several: as many neighbours as have no more than
    `offsets_max` offsets together, and of each topic partition one at the most."""
    tasks: list[tuple[OffsetRange, ...]] = []
    for each in ranges:
        before = tasks[-1] if tasks else ()
        has_room = sum(other.size for other in before) + each.size <= offsets_max
        is_new = all((other.topic, other.partition) != (each.topic, each.partition) for other in before)
        if before and has_room and is_new:
            tasks[-1] = (*before, each)
        else:
            tasks.append((each,))
    return tasks


def _cut(whole: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    """Cut a range into so many pieces of nearly the same size, without an empty one."""
    pieces = max(1, min(pieces, whole.size))
    bounds = [whole.next_offset + whole.size * i // pieces for i in range(pieces + 1)]
    for start, stop in itertools.pairwise(bounds):
        epoch = whole.leader_epoch if start == whole.next_offset else None
        yield OffsetRange(whole.topic, whole.topic_id, whole.partition, start, stop, epoch)
