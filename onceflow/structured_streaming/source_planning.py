"""Planner: what is there to read, asked of Kafka in the driver, and whether what was promised is still there.

One for each query, used by one thread. It keeps nothing that a restart would need: Spark's checkpoint has
the offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from onceflow.connectors.kafka.metadata import LogEnd, PartitionKey, Topic
from onceflow.connectors.kafka.options import Isolation
from onceflow.runtime.errors import DataLossError, OptionError
from onceflow.structured_streaming.source_offsets import OffsetRange, Offsets
from onceflow.structured_streaming.source_options import (
    EARLIEST,
    LATEST,
    AtPlaces,
    AtTimes,
    Position,
    SourceOptions,
)

_LOG = logging.getLogger(__name__)
_GO_ON = "; to go on with what is there, set failOnDataLoss to false"


class Cluster(Protocol):
    """The part of ClusterMetadata that is asked here."""

    def topic_names(self) -> list[str]: ...

    def describe(self, names: Sequence[str]) -> dict[str, Topic]: ...

    def offsets(
        self, wanted: Iterable[PartitionKey], at: Literal["earliest", "latest"] | int, isolation: Isolation
    ) -> dict[PartitionKey, int]: ...

    def ends(self, wanted: Iterable[PartitionKey], isolation: Isolation) -> dict[PartitionKey, LogEnd]: ...


@dataclass(frozen=True, slots=True)
class Available:
    """What there is beyond a start: a beginning and an end for every partition there is."""

    starts: Mapping[PartitionKey, int]
    ends: Mapping[PartitionKey, int]
    topic_ids: Mapping[str, str]
    new: frozenset[PartitionKey]
    """Partitions that the start does not know."""
    leader_epochs: Mapping[PartitionKey, int]
    """The leaders' epochs at the ends, as far as they are known."""


class Planner:
    """Finds where a query begins and ends, and what there is. Calls raise Retryable if the cluster does not
    answer, Fatal if it refuses us, OptionError for what the user has to correct, and DataLossError unless
    failOnDataLoss is false."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster

    # --- The first start ---

    def initial(self) -> Offsets:
        """Where a query without a checkpoint begins, as its options say."""
        topics = self.topics()
        self._options.subscription.refuse_missing(topics, self._cluster.topic_names, "subscribePattern")
        found = self._resolve(self._options.start, self.keys(topics), "starting")
        return Offsets(found, _ids(topics))

    @property
    def begins_at_end(self) -> bool:
        """Whether the same options would give another beginning a moment later, as records arrive."""
        match self._options.start:
            case "latest":
                return True
            case AtPlaces(offsets):
                return LATEST in offsets.values()
            case AtTimes(_, or_latest):
                return or_latest
        return False

    def final(self, start: Offsets) -> Offsets:
        """Where a batch ends, as its options say; never before its start."""
        keys = list(start.next_offset)
        ends = self._resolve(self._options.end, keys, "ending")
        stops = {key: max(ends[key], start.next_offset[key]) for key in keys}
        return Offsets(stops, start.topic_ids)

    # --- While it runs ---

    def topics(self, known: Iterable[str] = ()) -> dict[str, Topic]:
        """The topics of the subscription as they are now, and those in `known` that still exist."""
        subscription: Any = self._options.subscription
        topics: dict[str, Topic] = subscription.find(self._cluster)
        return {**self._cluster.describe(sorted(set(known) - set(topics))), **topics}

    def available(self, start: Offsets, topics: Mapping[str, Topic]) -> Available:
        """What is there beyond `start`. New partitions begin with their first record."""
        kept = self._still_there(start, topics)
        keys = self.keys({name: topic for name, topic in topics.items() if self._is_wanted(name)})
        ends = self._cluster.ends(keys, self._options.isolation)
        new = [key for key in keys if key not in kept]
        starts = {**{key: kept[key] for key in keys if key in kept}, **self._beginnings(new, start)}
        ended = {key: self._end(key, starts[key], ends[key].offset) for key in keys}
        epochs = {key: end.leader_epoch for key, end in ends.items() if end.leader_epoch is not None}
        return Available(starts, ended, _ids(topics, keys), frozenset(new), epochs)

    def check(self, start: Offsets, end: Offsets) -> None:
        """The topics of a batch that the checkpoint has planned: are they still the same ones?"""
        names = {topic for topic, _ in end.next_offset}
        topics = self._cluster.describe(sorted(names))
        for name in sorted(names):
            self._lost(_changed(name, end.topic_ids.get(name), topics.get(name)))

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What the tasks of a batch read: every offset from start to end, each once."""
        for name in sorted(start.topic_ids):
            if end.topic_ids.get(name) != start.topic_ids[name]:
                self._lost(f"topic {name!r} has been deleted since offset {start.json()[name]} was read")
        begins = {
            key: start.next_offset[key]
            for key in end.next_offset
            if key in start.next_offset
            and start.topic_ids.get(key[0], end.topic_ids.get(key[0])) == end.topic_ids.get(key[0])
        }
        epochs = {key: start.leader_epochs[key] for key in begins if key in start.leader_epochs}
        begins.update(self._beginnings([key for key in end.next_offset if key not in begins], start))
        ids = end.topic_ids or _ids(self._cluster.describe(sorted({topic for topic, _ in end.next_offset})))
        return [
            OffsetRange(key[0], ids.get(key[0], ""), key[1], begins[key], stop, epochs.get(key))
            for key, stop in sorted(end.next_offset.items())
        ]

    def keys(self, topics: Mapping[str, Topic]) -> list[PartitionKey]:
        """The partitions to read. Raises OptionError for an assigned one that does not exist."""
        keys = [key for name in sorted(topics) for key in topics[name].keys]
        assigned = self._options.partitions
        if assigned is None:
            return keys
        missing = sorted(assigned - set(keys))
        if missing:
            raise OptionError(f"assign names {missing[0][0]}-{missing[0][1]}, and there is no such partition")
        return sorted(assigned)

    # --- Parts ---

    def _is_wanted(self, name: str) -> bool:
        return self._options.subscription.pattern is not None or name in self._options.subscription.topics

    def _still_there(self, start: Offsets, topics: Mapping[str, Topic]) -> dict[PartitionKey, int]:
        """The starts that still mean what they meant."""
        kept = dict(start.next_offset)
        for name in sorted({topic for topic, _ in kept}):
            why = _changed(name, start.topic_ids.get(name), topics.get(name))
            if not why and not self._is_wanted(name):
                why = f"topic {name!r} is in the checkpoint, and the query does not read it any more"
            self._lost(why)
            if why:
                kept = {key: offset for key, offset in kept.items() if key[0] != name}
        return kept

    def _beginnings(self, new: Sequence[PartitionKey], start: Offsets) -> dict[PartitionKey, int]:
        """A partition that was added to a topic we read has lost records if it does not begin at 0."""
        begins = self._cluster.offsets(new, "earliest", self._options.isolation) if new else {}
        known = {topic for topic, _ in start.next_offset}
        for (topic, partition), offset in sorted(begins.items()):
            if offset > 0 and topic in known and (topic, partition) not in start.next_offset:
                self._lost(
                    f"{topic}-{partition} was added to its topic, and its first {offset} records were "
                    "deleted before they could be read"
                )
        return begins

    def _end(self, key: PartitionKey, start: int, end: int) -> int:
        """An end before the start: a start that waits for an open transaction, or a log that was cut."""
        if end >= start:
            return end
        high = self._cluster.offsets([key], "latest", "read_uncommitted")[key]
        if start > high:
            self._lost(
                f"{key[0]}-{key[1]} has to go on at offset {start}, but the broker's log ends at {high}: "
                "records that were read are gone from it"
            )
            return high
        return start

    def _lost(self, why: str) -> None:
        if not why:
            return
        if self._options.fail_on_data_loss:
            raise DataLossError(why + _GO_ON)
        _LOG.warning("%s; going on, as failOnDataLoss is false", why)

    def _resolve(
        self, position: Position, keys: Sequence[PartitionKey], side: str
    ) -> dict[PartitionKey, int]:
        isolation = self._options.isolation
        if isinstance(position, AtPlaces):
            return self._places(position.offsets, keys, f"{side}Offsets")
        if isinstance(position, AtTimes):
            return self._times(position, keys, side)
        return self._cluster.offsets(keys, position, isolation)

    def _places(
        self, offsets: Mapping[PartitionKey, int], keys: Sequence[PartitionKey], option: str
    ) -> dict[PartitionKey, int]:
        missing, unknown = sorted(set(keys) - set(offsets)), sorted(set(offsets) - set(keys))
        if missing:
            raise OptionError(
                f"{option} has no offset for {missing[0][0]}-{missing[0][1]}: name every partition"
            )
        if unknown:
            raise OptionError(f"{option} names {unknown[0][0]}-{unknown[0][1]}, which is not read")
        lows = self._cluster.offsets(keys, "earliest", "read_uncommitted")
        highs = self._cluster.offsets(keys, "latest", "read_uncommitted")
        ends = self._cluster.offsets(keys, "latest", self._options.isolation)
        found = {}
        for key, offset in offsets.items():
            found[key] = {LATEST: ends[key], EARLIEST: lows[key]}.get(offset, offset)
            if not lows[key] <= found[key] <= highs[key]:
                self._lost(
                    f"{option} wants {key[0]}-{key[1]} at offset {offset}, but the broker has {lows[key]} to "
                    f"{highs[key]}"
                )
                found[key] = min(max(found[key], lows[key]), highs[key])
            if option == "endingOffsets":  # beyond lies what an open transaction may still take back
                found[key] = min(found[key], ends[key])
        return found

    def _times(self, position: AtTimes, keys: Sequence[PartitionKey], side: str) -> dict[PartitionKey, int]:
        ends = self._cluster.offsets(keys, "latest", self._options.isolation)
        found: dict[PartitionKey, int] = {}
        for key in keys:
            time_ms = position.of(key)
            if time_ms is None:
                raise OptionError(
                    f"{side}OffsetsByTimestamp has no time for {key[0]}-{key[1]}: name every partition"
                )
            found[key] = time_ms
        for time_ms in set(found.values()):
            wanted = [key for key in keys if found[key] == time_ms]
            for key, offset in self._cluster.offsets(wanted, time_ms, self._options.isolation).items():
                if offset < 0 and not position.or_latest:
                    raise OptionError(
                        f"{key[0]}-{key[1]} has no record at or after {time_ms} ms: choose an earlier time, "
                        'or set startingOffsetsByTimestampStrategy to "latest"'
                    )
                ends[key] = min(offset, ends[key]) if offset >= 0 else ends[key]
        return ends


def _changed(name: str, topic_id: str | None, topic: Topic | None) -> str:
    """Why the offsets of this topic mean nothing any more; empty if they do."""
    if topic is None:
        return f"topic {name!r} has been deleted"
    if topic_id is not None and topic.topic_id != topic_id:
        return (
            f"topic {name!r} has been deleted and made anew (its id was {topic_id} and is {topic.topic_id}), "
            "so the same offsets are other records"
        )
    return ""


def _ids(topics: Mapping[str, Topic], keys: Iterable[PartitionKey] | None = None) -> dict[str, str]:
    names = topics if keys is None else {topic for topic, _ in keys}
    return {name: topics[name].topic_id for name in names}
