"""ShardFetches: the records of one shard, fetched ahead by one answer, on a thread for each request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from onceflow.connectors.kinesis.aggregated import HashRange, parts
from onceflow.connectors.kinesis.client import (
    SECOND_MS,
    Answer,
    ExpiredIterator,
    NotASequenceNumber,
    NotThere,
    StreamClient,
)
from onceflow.connectors.kinesis.position import ShardPosition, gone
from onceflow.connectors.kinesis.trimming import check_trimmed
from onceflow.runtime.errors import Fatal, OnceflowError

_SHORTEST_RETENTION_MS = 24 * 3_600_000
"""No stream keeps records for less."""


class Entry(NamedTuple):
    """A record, or a part of an aggregated one."""

    data: bytes | None
    """None: nothing of it is read, but the position moves."""
    key: str
    sequence: str
    part: int
    is_last: bool
    """Whether it is the last part of its record."""
    arrival_ms: int


@dataclass(frozen=True, slots=True)
class _Fetched:
    entries: Sequence[Entry]
    iterator: str | None
    has_ended: bool
    is_at_end: bool
    fetched: ShardPosition


class ShardFetches:
    """Fetches of one shard from behind a position. The reader's thread begins and collects; a thread of its
    own has one request at a time."""

    def __init__(self, client: StreamClient, position: ShardPosition, wake: Callable[[], None]) -> None:
        self._client = client
        self._wake = wake
        self._fetched = position
        """How far it was fetched: ahead of what was read."""
        self._iterator: str | None = None
        self._came: _Fetched | OnceflowError | None = None
        self.is_under_way = False
        self.entries: deque[Entry] = deque()
        """What was fetched and not read."""
        self.has_ended = False
        """There is nothing behind the entries, and never will be."""
        self.is_at_end = False
        """There was nothing behind the entries when it was last asked."""

    @property
    def complete_ms(self) -> int | None:
        """All that had arrived by then is in the entries, or was."""
        return self._fetched.complete_ms

    def begin(self) -> None:
        """Ask for more."""
        assert not self.is_under_way
        self.is_under_way = True
        name = f"onceflow-kinesis-{self._fetched.shard_id}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def collect(self) -> bool:
        """Take what came. Whether a request is over. Raises what it failed with; then `begin` may be called
        again."""
        came, self._came = self._came, None
        if came is None:
            return False
        self.is_under_way = False
        if isinstance(came, OnceflowError):
            self._iterator = None
            if isinstance(came, ExpiredIterator):
                return True
            raise came
        self._iterator, self.has_ended, self.is_at_end = came.iterator, came.has_ended, came.is_at_end
        self._fetched = came.fetched
        self.entries.extend(came.entries)
        return True

    # --- The thread ---

    def _run(self) -> None:
        position = self._fetched
        try:
            self._came = self._fetch(position)
        except NotThere as error:
            self._came = gone(position, f"Kinesis says: {error}")
        except OnceflowError as error:
            self._came = error
        except Exception as error:  # a bug: told where it is polled, and not on a thread that nobody sees
            self._came = Fatal(f"{position.shard_id}: {type(error).__name__}: {error}")
        self._wake()

    def _fetch(self, position: ShardPosition) -> _Fetched:
        answer = self._client.records(self._iterator or self._new_iterator(position))
        # The retention may have caught up with a reader that lags. What is there now was there then.
        if position.may_have_lost(answer.now_ms - _SHORTEST_RETENTION_MS):
            check_trimmed(self._client, position, self._client.summary())
        entries, is_over = entries_of(answer.records, position)
        fetched, is_at_end = position, False
        if entries:
            last = entries[-1]
            complete_ms = max(last.arrival_ms, position.complete_ms or 0)
            fetched = replace(position, after=last.sequence, taken=0, complete_ms=complete_ms)
            fetched = fetched.begun_with(entry.arrival_ms for entry in entries)
        elif _is_caught_up(answer):
            is_at_end, complete_ms = True, max(answer.now_ms - SECOND_MS, position.complete_ms or 0)
            fetched = replace(position, complete_ms=complete_ms)
            is_over = is_over or (position.until_ms is not None and complete_ms > position.until_ms)
        has_ended = is_over or answer.next_iterator is None
        return _Fetched(entries, answer.next_iterator, has_ended, is_at_end, fetched)

    def _new_iterator(self, position: ShardPosition) -> str:
        if position.after is None:
            return self._client.iterator_from(position.shard_id, position.from_ms)
        try:
            return self._client.iterator_after(position.shard_id, position.after)
        except NotASequenceNumber as error:
            raise gone(position, f"Kinesis does not know that number: {error}") from error


def arrival_of(record: Mapping[str, Any]) -> int:
    """When a record arrived, in ms."""
    return int(record["ApproximateArrivalTimestamp"].timestamp() * 1000)


def _is_caught_up(answer: Answer) -> bool:
    """A closed shard is not: when it was closed, nobody says."""
    return answer.next_iterator is not None and not answer.records and not answer.behind_ms


def entries_of(records: Sequence[Mapping[str, Any]], position: ShardPosition) -> tuple[list[Entry], bool]:
    """The parts of records that come behind a position; and whether what is wanted ends with them."""
    entries: list[Entry] = []
    of_shard = HashRange(int(position.first_hash), int(position.last_hash))
    from_ms, until_ms, taken = position.from_ms or 0, position.until_ms, position.taken
    begins_ms = position.begins_ms
    for record in records:
        arrival_ms = arrival_of(record)
        if until_ms is not None and arrival_ms > until_ms:
            return entries, True
        if begins_ms is not None:
            if arrival_ms >= begins_ms:
                begins_ms, from_ms = None, 0
            else:
                from_ms = begins_ms
        sequence, key = record["SequenceNumber"], record["PartitionKey"]
        found = parts(record["Data"], key, of_shard) if arrival_ms >= from_ms else []
        last = len(found) - 1
        for number, part in enumerate(found[taken:], taken):
            entries.append(Entry(part.data, part.key, sequence, number, number == last, arrival_ms))
        if not found:
            entries.append(Entry(None, key, sequence, 0, True, arrival_ms))
        taken = 0
    return entries, False
