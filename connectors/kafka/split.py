"""Topic partitions as splits: found, given their first offset, and checked before a restore."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from onceflow.connectors.kafka.lost_records import check_range
from onceflow.connectors.kafka.metadata import ClusterMetadata, PartitionKey, Topic
from onceflow.connectors.kafka.options import Isolation
from onceflow.connectors.kafka.starts import AtOffsets, AtTime, Earliest, FromGroup, Latest, Start, Stop
from onceflow.connectors.kafka.stops import check_named, stop_offsets
from onceflow.runtime.contracts import Json, SplitState
from onceflow.runtime.errors import DataLossError, OptionError
from onceflow.runtime.nearest import nearest


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A topic partition and where to go on reading it.

    `next_offset` is the first offset not yet read, `stop_offset` the first not to be read (None:
    unbounded). The topic's id tells a topic from another one that was made anew under its name.

    `leader_epoch` is that of the last record that was read, by which a log that lost this record is told from
    the one that was read (KIP-320), and `epoch_offset` the offset behind it: what lies between that and
    next_offset are no records. None, both: nothing was read yet, or it was before they were kept.
    """

    topic: str
    topic_id: str
    partition: int
    next_offset: int
    stop_offset: int | None = None
    leader_epoch: int | None = None
    epoch_offset: int | None = None

    @property
    def split_id(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.partition

    @property
    def is_finished(self) -> bool:
        return self.stop_offset is not None and self.next_offset >= self.stop_offset

    def limited(self, offset: int) -> int:
        """This offset, but not before next_offset nor beyond stop_offset."""
        forward = max(self.next_offset, offset)
        return forward if self.stop_offset is None else min(forward, self.stop_offset)

    def skipped(self, next_offset: int) -> KafkaSplit:
        """The same, from next_offset: nothing was read there."""
        if next_offset == self.next_offset:
            return self
        return replace(self, next_offset=next_offset, leader_epoch=None, epoch_offset=None)

    def state(self) -> SplitState:
        return SplitState(
            self.split_id,
            {
                "topic": self.topic,
                "topic_id": self.topic_id,
                "partition": self.partition,
                "next_offset": self.next_offset,
                "stop_offset": self.stop_offset,
                "leader_epoch": self.leader_epoch,
                "epoch_offset": self.epoch_offset,
            },
        )

    @staticmethod
    def from_state(state: SplitState) -> KafkaSplit:
        return KafkaSplit(**state.position)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics that are read: by name, or all that a pattern matches from end to end."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def find(self, metadata: ClusterMetadata) -> dict[str, Topic]:
        """The topics that exist now."""
        if self.pattern is not None:
            matches = re.compile(self.pattern).fullmatch
            return metadata.describe([name for name in metadata.topic_names() if matches(name)])
        return metadata.describe(self.topics)

    def refuse_missing(
        self, found: Collection[str], all_names: Callable[[], Sequence[str]], pattern_option: str
    ) -> None:
        """Raises OptionError with all topics that are subscribed to and were not found, or if there is none.
        `all_names` asks for the names of the cluster's topics, `pattern_option` is what the user calls a
        pattern."""
        if self.pattern is not None and not found:
            there = ", ".join(all_names()[:10]) or "none"
            raise OptionError(
                f"no topic matches {pattern_option}={self.pattern!r}, which has to match the whole name; "
                f"topics there: {there}"
            )
        missing = [name for name in self.topics if name not in found]
        if not missing:
            return
        names = all_names()
        hints = {name: nearest(name, names) for name in missing}
        if len(missing) == 1:
            name, hint = hints.popitem()
            raise OptionError(f"topic {name!r} does not exist{hint}: create it or correct the name")
        told = ", ".join(f"{name!r}{hint}" for name, hint in hints.items())
        raise OptionError(f"topics that do not exist: {told}; create them or correct the names")


class KafkaSplitEnumerator:
    """See SplitEnumerator, and Skipping-, Bounding- and WaitingEnumerator. Its calls raise Retryable if the
    cluster does not answer within ClusterMetadata's timeout, Fatal if it refuses us."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        subscription: Subscription,
        start: Start,
        isolation: Isolation,
        discovery_interval_ms: int | None,
        first_answer_ms: int | None = None,
        read_start: Callable[[object], Start] | None = None,
        stop: Stop = Latest(),  # noqa: B008 - it is frozen
    ) -> None:
        """`discovery_interval_ms` None: bounded, up to `stop`.
        `first_answer_ms`: how long the first answer to a new job is waited for, if not as long as others.
        `read_start`: what a user's other start means; without it there is none but `start`."""
        self._metadata = metadata
        self._subscription = subscription
        self._start = start
        self._isolation: Isolation = isolation
        self._discovery_interval_ms = discovery_interval_ms
        self._first_answer_ms = first_answer_ms
        self._read_start = read_start
        self._stop = stop
        self._topic_ids: dict[str, str] = {}

    @property
    def discovery_interval_ms(self) -> int | None:
        return self._discovery_interval_ms

    def initial_splits(self) -> Sequence[SplitState]:
        self._metadata.expect_first_answer(self._first_answer_ms)
        topics = self._subscription.find(self._metadata)
        self._subscription.refuse_missing(topics, self._metadata.topic_names, "topic_pattern")
        keys = [key for topic in topics.values() for key in topic.keys]
        starts, stops = self._start_offsets(keys), self._stops(keys)
        self._topic_ids.update({topic.name: topic.topic_id for topic in topics.values()})
        return [self._split(key, starts[key], stops.get(key)).state() for key in keys]

    def splits_from(self, start: Json) -> Sequence[SplitState]:
        """See StartingEnumerator."""
        assert self._read_start is not None, "it was made to begin elsewhere"
        configured, self._start = self._start, self._read_start(start)
        try:
            return self.initial_splits()
        finally:
            self._start = configured

    def bounded(self, splits: Sequence[SplitState], finished: Json) -> Sequence[SplitState]:
        """See BoundingEnumerator. Partitions that came since are read from their beginning."""
        if self._discovery_interval_ms is not None:
            return splits
        topics = self._subscription.find(self._metadata)
        self._topic_ids.update({topic.name: topic.topic_id for topic in topics.values()})
        known = {split.key: split for split in map(KafkaSplit.from_state, splits)}
        keys = list(dict.fromkeys([*known, *(key for topic in topics.values() for key in topic.keys)]))
        starts = self._metadata.offsets(
            [key for key in keys if key not in known], "earliest", self._isolation
        )
        stops = self._stops([key for key in keys if key not in known or known[key].stop_offset is None])
        found = [known.get(key) or self._split(key, starts[key], None) for key in keys]
        return [
            replace(split, stop_offset=stops.get(split.key, split.stop_offset)).state() for split in found
        ]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        """See SplitEnumerator. Raises DataLossError if a topic was deleted or made anew since the start."""
        if self._discovery_interval_ms is None:
            return []
        topics = self._subscription.find(self._metadata)
        topics.update(self._metadata.describe(sorted(set(self._topic_ids) - set(topics))))
        for name, topic_id in self._topic_ids.items():
            _check_topic(name, topic_id, topics.get(name))
        keys = [key for topic in topics.values() for key in topic.keys if f"{key[0]}-{key[1]}" not in known]
        starts = self._metadata.offsets(keys, "earliest", self._isolation)
        self._topic_ids.update({topic: topics[topic].topic_id for topic, _ in keys})
        return [self._split(key, starts[key], None).state() for key in keys]

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        restored = [KafkaSplit.from_state(state) for state in splits]
        unfinished = [split for split in restored if not split.is_finished]
        topics = self._metadata.describe(sorted({split.topic for split in unfinished}))
        for split in unfinished:
            _check_topic(split.topic, split.topic_id, topics.get(split.topic), split)
            self._topic_ids[split.topic] = split.topic_id
        keys = [split.key for split in unfinished]
        lows = self._metadata.offsets(keys, "earliest", "read_uncommitted")
        highs = self._metadata.offsets(keys, "latest", "read_uncommitted")
        for split in unfinished:
            check_range(split.split_id, split.next_offset, lows[split.key], highs[split.key])

    def warnings(self, splits: Sequence[SplitState]) -> Sequence[str]:
        """Where a checkpoint folder was started with the other choice of until= than now."""
        restored = [KafkaSplit.from_state(state) for state in splits]
        is_bounded = self._discovery_interval_ms is None
        other = [split.split_id for split in restored if (split.stop_offset is None) is is_bounded]
        if not other:
            return []
        which = other[0] + (f" and {len(other) - 1} more" if len(other) > 1 else "")
        if is_bounded:
            return [
                f"until= has no effect on {which}: where reading ends is fixed when a checkpoint folder is "
                "started, and this one was started without it, so the job goes on until it is stopped. Use a "
                "new checkpoint folder for a job that ends"
            ]
        return [
            f"{which} end where they ended for until=, with which this checkpoint folder was started: what "
            "came later is not read. Use a new checkpoint folder for a job that goes on"
        ]

    def skip_to_end(self, splits: Sequence[SplitState]) -> Sequence[SplitState]:
        old = [KafkaSplit.from_state(state) for state in splits]
        ends = self._metadata.offsets([split.key for split in old], "latest", self._isolation)
        return [split.skipped(split.limited(ends[split.key])).state() for split in old]

    def waiting_for(self) -> str | None:
        return self._metadata.waiting_for()

    def close(self) -> None:
        self._metadata.close()

    def _split(self, key: PartitionKey, next_offset: int, stop_offset: int | None) -> KafkaSplit:
        return KafkaSplit(key[0], self._topic_ids[key[0]], key[1], next_offset, stop_offset)

    def _stops(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, int]:
        """Where reading ends; nowhere, if it does not."""
        if self._discovery_interval_ms is not None:
            return {}
        return stop_offsets(self._metadata, keys, self._stop, self._isolation)

    def _start_offsets(self, keys: Sequence[PartitionKey]) -> Mapping[PartitionKey, int]:
        ask: Callable[..., dict[PartitionKey, int]] = self._metadata.offsets
        match self._start:
            case Earliest():
                return ask(keys, "earliest", self._isolation)
            case Latest():
                return ask(keys, "latest", self._isolation)
            case AtTime(time_ms):
                ends = ask(keys, "latest", self._isolation)
                found = ask(keys, time_ms, self._isolation)
                return {key: found[key] if found[key] >= 0 else ends[key] for key in keys}
            case FromGroup(group_id):
                committed = self._metadata.committed(group_id, keys)
                return self._checked(
                    keys, {**ask(keys, "earliest", self._isolation), **committed}, f"group {group_id!r}"
                )
            case AtOffsets(offsets):
                named = {f"{topic}-{partition}": (topic, partition) for topic, partition in keys}
                check_named("start", offsets, named)
                return self._checked(
                    keys, {named[name]: offset for name, offset in offsets.items()}, "start="
                )

    def _checked(
        self, keys: Sequence[PartitionKey], starts: Mapping[PartitionKey, int], origin: str
    ) -> Mapping[PartitionKey, int]:
        lows = self._metadata.offsets(keys, "earliest", "read_uncommitted")
        highs = self._metadata.offsets(keys, "latest", "read_uncommitted")
        for key in keys:
            if not lows[key] <= starts[key] <= highs[key]:
                raise DataLossError(
                    f"{origin} wants {key[0]}-{key[1]} from offset {starts[key]}, but the broker has "
                    f"{lows[key]} to {highs[key]}: choose another start"
                )
        return starts


def _check_topic(name: str, topic_id: str, topic: Topic | None, split: KafkaSplit | None = None) -> None:
    place = f"{split.split_id} can't go on at offset {split.next_offset}: " if split else ""
    if topic is None:
        raise DataLossError(f"{place}topic {name!r} has been deleted")
    if topic.topic_id != topic_id:
        raise DataLossError(
            f"{place}topic {name!r} has been deleted and made anew (its id was {topic_id} and is "
            f"{topic.topic_id}), so the same offsets are other records: start the job anew, without the "
            "checkpoint"
        )
    if split is not None and split.partition not in topic.partitions:
        raise DataLossError(f"{place}topic {name!r} has no partition {split.partition} any more")
