"""KinesisEnumerator: finds the shards of a stream, children when their parents are finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onceflow.connectors.kinesis.client import SECOND_MS, NotThere, StreamClient, StreamPlace, Summary
from onceflow.connectors.kinesis.finished_shards import FinishedShards
from onceflow.connectors.kinesis.position import ShardPosition, gone, lost_parent
from onceflow.connectors.kinesis.shards import Shard, first_shards, new_shards
from onceflow.connectors.kinesis.trimming import check_trimmed, first_record
from onceflow.runtime.contracts import Json, SplitState
from onceflow.runtime.errors import DataLossError, UsageError


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is read of a stream at the job's first start."""

    from_ms: int | None
    """None: all that is there."""
    from_now: bool
    until_ms: int | None
    until_now: bool

    @property
    def is_bounded(self) -> bool:
        return self.until_now or self.until_ms is not None


class KinesisEnumerator:
    """A SplitEnumerator, a PruningEnumerator, a SkippingEnumerator and a BoundingEnumerator."""

    def __init__(self, place: StreamPlace, bounds: Bounds, interval_ms: int) -> None:
        self._place = place
        self._bounds = bounds
        self._interval_ms = interval_ms
        self._opened: StreamClient | None = None

    @property
    def discovery_interval_ms(self) -> int | None:
        return None if self._bounds.is_bounded else self._interval_ms

    def initial_splits(self) -> Sequence[SplitState]:
        client, bounds = self._client(), self._bounds
        summary, listed = client.summary(), client.shards()
        from_ms = summary.now_ms if bounds.from_now else bounds.from_ms
        until_ms = self._until_ms(summary)
        # What is older than the horizon was never there for this job: only what comes behind can be missed.
        complete_ms = from_ms if from_ms is not None and from_ms > summary.horizon_ms else None
        if bounds.is_bounded:
            first = self._one_generation(listed, from_ms)
        else:
            first = first_shards(listed, bounds.from_now)
        whole = ShardPosition("", self._place.stream, summary.created_ms)
        whole = replace(whole, from_ms=from_ms, until_ms=until_ms, complete_ms=complete_ms)
        return [beginning_of(shard, whole).state() for shard in first]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return self.discover_unfinished(known, None)

    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        client, done = self._client(), FinishedShards(finished)
        return self._behind(None, client.shards(), known, done)

    def _behind(
        self, summary: Summary | None, listed: Sequence[Shard], known: frozenset[str], done: FinishedShards
    ) -> list[SplitState]:
        """The shards that are to be read now, since what came before them was."""
        found = new_shards(listed, known, done)
        if not found:
            return []
        created_ms = (summary or self._client().summary()).created_ms
        whole = ShardPosition("", self._place.stream, created_ms, from_ms=done.from_ms)
        return [
            replace(
                beginning_of(new.shard, whole),
                complete_ms=done.complete_ms(new.shard.parents),
                lost_parent=new.lost_parent,
            ).state()
            for new in found
        ]

    def skip_to_end(self, splits: Sequence[SplitState]) -> Sequence[SplitState]:
        now_ms = self._client().summary().now_ms
        return [ShardPosition.of(split).skipped_to(now_ms).state() for split in splits]

    def bounded(self, splits: Sequence[SplitState], finished: Json) -> Sequence[SplitState]:
        """See BoundingEnumerator. Shards whose parents were read before the savepoint are read, too."""
        if not self._bounds.is_bounded:
            return splits
        client = self._client()
        summary, listed = client.summary(), client.shards()
        known, done = frozenset(split.split_id for split in splits), FinishedShards(finished)
        found = [*splits, *self._behind(summary, listed, known, done)]
        read = {split.split_id for split in found}
        for shard in listed:
            if shard.shard_id not in read and (both := read.intersection(shard.parents)):
                raise self._resharded(min(both))
        until_ms = self._until_ms(summary)
        return [_until(ShardPosition.of(split), until_ms).state() for split in found]

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        """Raises DataLossError where a shard can't be read on exactly."""
        if not splits:
            return
        client = self._client()
        positions = [ShardPosition.of(split) for split in splits]
        try:
            summary, listed = client.summary(), client.shards()
        except NotThere as error:
            raise gone(positions[0], "the stream is not there") from error
        there = {shard.shard_id for shard in listed}
        for position in positions:
            if position.stream != self._place.stream:
                raise DataLossError(
                    f"the checkpoint is of stream {position.stream!r}, and the source reads "
                    f"{self._place.stream!r}: give another uid, or another checkpoint folder"
                )
            if position.created_ms != summary.created_ms:
                raise gone(position, "the stream was deleted and made anew since")
            if position.lost_parent is not None:
                raise lost_parent(position)
            if position.shard_id not in there:
                raise gone(position, "the shard is not there any more (its retention is over)")
            check_trimmed(client, position, summary)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _client(self) -> StreamClient:
        if self._opened is None:
            self._opened = StreamClient(self._place, 1)
        return self._opened

    def _one_generation(self, listed: Sequence[Shard], from_ms: int | None) -> list[Shard]:
        """The shards without those that have nothing to read. Raises UsageError if parents are among them:
        a job that has an end can't wait for children."""
        client = self._client()
        parents = {parent for shard in listed for parent in shard.parents}
        read = [s for s in listed if s.shard_id not in parents or _has_record(client, s.shard_id, from_ms)]
        if both := next((s for s in read if s.shard_id in parents), None):
            raise self._resharded(both.shard_id)
        return read

    def _resharded(self, shard_id: str) -> UsageError:
        return UsageError(
            f"stream {self._place.stream!r}: {shard_id} was split or merged in the time that is to be read, "
            "and its children may only be read after it, which until= can't wait for: leave until= out, or "
            "give a start= (or a savepoint) behind the resharding"
        )

    def _until_ms(self, summary: Summary) -> int | None:
        return summary.now_ms + SECOND_MS - 1 if self._bounds.until_now else self._bounds.until_ms


def _until(position: ShardPosition, until_ms: int | None) -> ShardPosition:
    return position if position.until_ms is not None else replace(position, until_ms=until_ms)


def _has_record(client: StreamClient, shard_id: str, from_ms: int | None) -> bool:
    return first_record(client, client.iterator_from(shard_id, from_ms)) is not None


def beginning_of(shard: Shard, whole: ShardPosition) -> ShardPosition:
    """The beginning of a shard. `whole`: what all of the stream have."""
    return replace(
        whole,
        shard_id=shard.shard_id,
        parents=shard.parents,
        first_hash=shard.first_hash,
        last_hash=shard.last_hash,
    )
