"""Whether records were trimmed that were not read: the stream keeps them for its retention, and no longer."""

from __future__ import annotations

from onceflow.connectors.kinesis.client import NotASequenceNumber, StreamClient, Summary
from onceflow.connectors.kinesis.position import ShardPosition, trimmed

_HOUR_MS = 3_600_000
_EMPTY_ANSWERS_MAX = 100
"""Kinesis may answer with nothing though there is something further on."""


def check_trimmed(client: StreamClient, position: ShardPosition, summary: Summary) -> None:
    """Raises DataLossError if what follows may be gone: nothing is, as long as the last record that was read
    is there itself, since records go in their order."""
    if not position.may_have_lost(summary.horizon_ms):
        return
    first = None
    if position.after is not None:
        try:
            first = first_record(client, client.iterator_at(position.shard_id, position.after))
        except NotASequenceNumber:
            first = None
        if first == position.after:
            return
    raise trimmed(position, first, summary.retention_ms / _HOUR_MS)


def first_record(client: StreamClient, iterator: str) -> str | None:
    """The sequence number of the first record from there on; None: there is none."""
    for _ in range(_EMPTY_ANSWERS_MAX):
        answer = client.records(iterator, 1)
        if answer.records:
            return str(answer.records[0]["SequenceNumber"])
        if answer.next_iterator is None or not answer.behind_ms:
            return None
        iterator = answer.next_iterator
    return None
