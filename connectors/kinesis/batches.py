"""KinesisPlanner: a stream in batches, each a span of the time at which records arrived.

Kinesis says nothing of a shard's last sequence number, and to know one takes reading. So a batch ends at a
time that has passed. The times of a shard's records need not rise from one to the next: what a batch has is
defined by places in the shard, not by each record's own time. It begins with the first record that arrived
behind the batch before, and ends before the first one that arrived behind it itself. That is the same record
for both, whenever it is looked for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from onceflow.connectors.kinesis.client import SECOND_MS, StreamClient, StreamPlace, Summary
from onceflow.connectors.kinesis.enumerator import Bounds, beginning_of
from onceflow.connectors.kinesis.fetches import arrival_of
from onceflow.connectors.kinesis.position import ShardPosition, gone, trimmed
from onceflow.connectors.kinesis.shards import Shard
from onceflow.connectors.look_pace import LookPace
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, SplitState
from onceflow.runtime.errors import OptionError

SETTLED_MS = 3_000
"""A batch has nothing younger: what arrived by then is there to be read, and the server's clock is known in
whole seconds."""
_LOOK_MS = 1_000
"""Kinesis allows five readings of a shard in a second."""
_MARGIN_MS = 1_000
"""Reading begins so much earlier than the batch, in whole seconds, and leaves out what was before it."""
_LOOKED_AT = 100
"""Records of one answer to the question whether there are new ones."""
_IDLE_MS = 600_000
"""A stream on which nothing arrives moves on by empty batches, so that its place does not get older than what
it keeps."""
_WAIT_S = 0.5
_HOUR_MS = 3_600_000
_EMPTY_ANSWERS_MAX = 100


class KinesisPlanner:
    """A BatchPlanner. A place: all that arrived by `until_ms` was read, of all shards; None: nothing was."""

    def __init__(self, place: StreamPlace, bounds: Bounds, clock: Clock, limit: BatchLimit) -> None:
        if bounds.is_bounded:
            raise OptionError("a stream that is read in batches has no until: leave it out")
        self._place = place
        self._bounds = bounds
        self._span_ms = limit.span_ms
        self._opened: StreamClient | None = None
        self._pace = LookPace(clock, _LOOK_MS)
        self._exhausted: set[str] = set()
        """Closed shards that have nothing behind a place that was asked for."""
        self._held_ms: int | None = None

    def first(self) -> Json:
        return {"created_ms": None, "until_ms": None}

    def next(self, place: Json) -> Json:
        if place["created_ms"] is None:
            return self._beginning()
        if self._held_ms is None and not self._pace.is_due():
            return place
        client = self._client()
        settled_ms = self._held_ms
        if settled_ms is None:
            settled_ms = client.summary().now_ms - SETTLED_MS
        until_ms = place["until_ms"]
        if until_ms is not None and settled_ms <= until_ms:
            return place
        first_ms = self._first_arrival(until_ms)
        if first_ms is None or first_ms > settled_ms:
            is_old = until_ms is None or until_ms + _IDLE_MS < settled_ms
            return {**place, "until_ms": settled_ms} if is_old and self._held_ms is None else place
        self._pace.found_some()
        end_ms = settled_ms if self._span_ms is None else min(settled_ms, first_ms + self._span_ms)
        return {**place, "until_ms": end_ms}

    def hold(self) -> None:
        """Waits some seconds, until all that has arrived by now is settled."""
        client = self._client()
        held_ms = client.summary().now_ms + SECOND_MS - 1
        while client.summary().now_ms < held_ms + SETTLED_MS:
            time.sleep(_WAIT_S)
        self._held_ms = held_ms

    def tasks(self, begin: Json, end: Json) -> Sequence[Sequence[SplitState]]:
        from_ms, until_ms = begin["until_ms"], end["until_ms"]
        if begin["created_ms"] is None or until_ms is None or from_ms == until_ms:
            return []
        client = self._client()
        summary = client.summary()
        whole = batch_of(self._place.stream, end["created_ms"], from_ms, until_ms)
        _check(whole, summary)
        shards = [shard for shard in client.shards() if shard.shard_id not in self._exhausted]
        return [[beginning_of(shard, whole).state()] for shard in shards]

    def done(self, place: Json) -> None:
        """Kinesis keeps records for as long as it keeps them."""

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    # --- Parts ---

    def _client(self) -> StreamClient:
        if self._opened is None:
            self._opened = StreamClient(self._place, 1)
        return self._opened

    def _beginning(self) -> Json:
        summary = self._client().summary()
        start_ms = summary.now_ms - 1 if self._bounds.from_now else self._bounds.from_ms
        is_missing = start_ms is None or start_ms <= summary.horizon_ms
        return {"created_ms": summary.created_ms, "until_ms": None if is_missing else start_ms}

    def _first_arrival(self, until_ms: int | None) -> int | None:
        """When the first record behind a place arrived; None: there is none."""
        client = self._client()
        found: list[int] = []
        for shard in client.shards():
            if shard.shard_id in self._exhausted:
                continue
            first_ms, has_ended = _first_behind(client, shard, until_ms)
            if first_ms is not None:
                found.append(first_ms)
            elif has_ended:
                self._exhausted.add(shard.shard_id)
        return min(found, default=None)


def batch_of(stream: str, created_ms: int, from_ms: int | None, until_ms: int) -> ShardPosition:
    """What the positions of all shards have in a batch from behind one time up to another."""
    return ShardPosition(
        "all shards",
        stream,
        created_ms,
        from_ms=None if from_ms is None else _before(from_ms),
        begins_ms=None if from_ms is None else from_ms + 1,
        until_ms=until_ms,
        complete_ms=from_ms,
    )


def _first_behind(client: StreamClient, shard: Shard, until_ms: int | None) -> tuple[int | None, bool]:
    """When the first record of a shard arrived that is behind a place; and whether the shard has ended, so
    that there never will be one."""
    iterator = client.iterator_from(shard.shard_id, None if until_ms is None else _before(until_ms))
    for _ in range(_EMPTY_ANSWERS_MAX):
        answer = client.records(iterator, _LOOKED_AT)
        for record in answer.records:
            arrival_ms = arrival_of(record)
            if until_ms is None or arrival_ms > until_ms:
                return arrival_ms, False
        if answer.next_iterator is None:
            return None, True
        if not answer.records and not answer.behind_ms:
            return None, False
        iterator = answer.next_iterator
    return None, False


def _before(until_ms: int) -> int:
    """A time from which to read so as to meet the first record behind another."""
    return (until_ms - _MARGIN_MS) // SECOND_MS * SECOND_MS


def _check(whole: ShardPosition, summary: Summary) -> None:
    """Raises DataLossError where what a batch has may be gone."""
    if whole.created_ms != summary.created_ms:
        raise gone(whole, "the stream was deleted and made anew since")
    if whole.may_have_lost(summary.horizon_ms):
        raise trimmed(whole, None, summary.retention_ms / _HOUR_MS)
