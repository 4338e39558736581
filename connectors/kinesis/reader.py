"""KinesisReader: the records of shards as rows, each shard from exactly where it was left."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
import pyarrow as pa

from onceflow.connectors.kinesis.client import StreamClient, StreamPlace
from onceflow.connectors.kinesis.columns import COLUMN_TYPES
from onceflow.connectors.kinesis.fetches import Entry, ShardFetches
from onceflow.connectors.kinesis.position import ShardPosition, lost_parent
from onceflow.connectors.message_rows import Letter, MessageRows
from onceflow.connectors.reconnects import Reconnects
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.errors import Retryable

REQUESTS_MAX = 16
"""The most requests of one reader at once."""


class _Shard:
    """A split: how far it was read, and what was fetched ahead."""

    def __init__(self, position: ShardPosition, fetches: ShardFetches, reconnects: Reconnects) -> None:
        self.position = position
        self.fetches = fetches
        self.reconnects = reconnects
        self.due_ms = 0.0
        self.is_paused = False
        self.is_finished = False
        self.tells_end = False
        """Whether it was found at its end, and nobody was told."""

    def take(self, count: int) -> list[Entry]:
        """The next entries; the position moves behind them."""
        entries = self.fetches.entries
        taken = list(islice(entries, count))
        for _ in taken:
            entries.popleft()
        last, position = taken[-1], self.position
        whole = next((each for each in reversed(taken) if each.is_last), None)
        after = position.after if whole is None else whole.sequence
        known_ms = position.complete_ms or 0
        self.position = replace(
            position.begun_with(entry.arrival_ms for entry in taken),
            after=after,
            taken=0 if last.is_last else last.part + 1,
            complete_ms=position.complete_ms if whole is None else max(known_ms, whole.arrival_ms),
            count=position.count + sum(each.data is not None for each in taken),
        )
        return taken


class KinesisReader:
    """A SourceReader, a ForgettingReader and a PausableReader."""

    def __init__(
        self,
        place: StreamPlace,
        rows: MessageRows,
        columns: Sequence[str],
        interval_ms: int,
        give_up_ms: int,
        context: ReaderContext,
    ) -> None:
        """`columns`: what is known of a record beside its data, by the names of COLUMN_TYPES.
        `interval_ms`: how far apart requests for one shard are."""
        self._client = StreamClient(place, REQUESTS_MAX)
        self._rows = rows
        self._columns = columns
        self._interval_ms = interval_ms
        self._give_up_ms = give_up_ms
        self._context = context
        self._shards: dict[str, _Shard] = {}
        self._turn = 0

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        context = self._context
        for split in splits:
            position = ShardPosition.of(split)
            fetches = ShardFetches(self._client, position, context.wake)
            reconnects = Reconnects(context.clock, context.on_wait, self._give_up_ms)
            self._shards[split.split_id] = _Shard(position, fetches, reconnects)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """The next records of one shard; there is no waiting."""
        shards = [s for s in self._shards.values() if not s.is_finished and not s.is_paused]
        for shard in shards:
            self._collect(shard)
        self._begin(shards)
        for _ in shards:
            self._turn += 1
            shard = shards[self._turn % len(shards)]
            if shard.position.lost_parent is not None:
                raise lost_parent(shard.position)
            if shard.fetches.entries:
                return self._fetch(shard, shard.take(records_max))
            if shard.fetches.has_ended:
                shard.is_finished = True
                return self._fetch(shard, [])
            if shard.tells_end:
                shard.tells_end = False
                shard.position = replace(shard.position, complete_ms=shard.fetches.complete_ms)
                return self._fetch(shard, [])
        return None

    def snapshot(self) -> Sequence[SplitState]:
        return [shard.position.state() for shard in self._shards.values()]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody looks for them: the metric MillisBehindLatest is Kinesis' own."""

    def forget_splits(self, split_ids: Collection[str]) -> None:
        """See ForgettingReader."""
        for split_id in split_ids:
            self._shards.pop(split_id, None)

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        for split_id in split_ids:
            self._shards[split_id].is_paused = True

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        for split_id in split_ids:
            self._shards[split_id].is_paused = False

    def close(self) -> None:
        self._client.close()

    # --- Parts ---

    def _collect(self, shard: _Shard) -> None:
        try:
            if shard.fetches.collect():
                shard.reconnects.worked()
                shard.tells_end = shard.fetches.is_at_end
        except Retryable as error:
            shard.reconnects.failed(error)

    def _begin(self, shards: Sequence[_Shard]) -> None:
        """Ask for more where nothing is left, and it is time."""
        now_ms = self._context.clock.monotonic_ms()
        under_way = sum(shard.fetches.is_under_way for shard in shards)
        for shard in sorted(shards, key=lambda each: each.due_ms):
            fetches = shard.fetches
            if under_way >= REQUESTS_MAX or now_ms < shard.due_ms:
                return
            if fetches.is_under_way or fetches.entries or fetches.has_ended or not shard.reconnects.is_time:
                continue
            fetches.begin()
            shard.due_ms = now_ms + self._interval_ms
            under_way += 1

    def _fetch(self, shard: _Shard, entries: Sequence[Entry]) -> Fetch:
        position = shard.position
        read = [entry for entry in entries if entry.data is not None]
        first = position.count - len(read)

        def letter(number: int) -> Letter:
            entry = read[number]
            what = f"record {entry.sequence} of stream {position.stream!r}, {position.shard_id}"
            partition = int("".join(filter(str.isdecimal, position.shard_id))[-9:] or 0)
            return Letter(what, position.stream, partition, first + number, entry.key.encode())

        made = self._rows.of(
            [entry.data or b"" for entry in read],
            lambda kept: self._beside(position.shard_id, [read[number] for number in kept]),
            letter,
        )
        kept, context, split_id = made.kept, self._context, position.shard_id
        arrival_ms = np.array([entry.arrival_ms for entry in read], np.int64)
        return Fetch(
            made.batch,
            np.zeros(made.batch.num_rows, np.uint16),
            (split_id,),
            kept + first if context.with_origin else None,
            arrival_ms[kept] if context.with_timestamp else None,
            dead_letters=made.dead_letters,
            kind=made.kinds,
            at_end=frozenset() if entries or shard.is_finished else frozenset({split_id}),
            finished=frozenset({split_id}) if shard.is_finished else frozenset(),
        )

    def _beside(self, shard_id: str, entries: Sequence[Entry]) -> list[pa.Array]:
        values: dict[str, list[str] | list[int]] = {
            "partition_key": [entry.key for entry in entries],
            "arrival_time": [entry.arrival_ms for entry in entries],
            "shard": [shard_id] * len(entries),
            "sequence_number": [
                entry.sequence if entry.is_last and not entry.part else f"{entry.sequence}.{entry.part}"
                for entry in entries
            ],
        }
        return [pa.array(values[what], COLUMN_TYPES[what]) for what in self._columns]
