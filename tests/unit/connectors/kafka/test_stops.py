"""Where reading ends, and what of it splits of a savepoint get: of a cluster that is a table of offsets."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from onceflow.connectors.kafka.metadata import PartitionKey
from onceflow.connectors.kafka.split import KafkaSplit, KafkaSplitEnumerator, Subscription
from onceflow.connectors.kafka.starts import AtOffsets, AtTime, Earliest, Latest, Stop
from onceflow.connectors.kafka.stops import stop_offsets
from onceflow.runtime.errors import OptionError

KEYS = [("t", 0), ("t", 1), ("t", 2)]


class Cluster:
    """Each partition has records from 5 on, one for each ms; so many of them are committed."""

    ends = (20, 9, 5)

    def offsets(self, keys: Sequence[PartitionKey], at: Any, isolation: str) -> dict[PartitionKey, int]:
        ends = {("t", n): end for n, end in enumerate(self.ends)}
        if at == "latest":
            return {key: ends[key] + (isolation == "read_uncommitted") for key in keys}
        return {key: 5 if at == "earliest" else (at if at < ends[key] else -1) for key in keys}

    def describe(self, topics: Sequence[str]) -> dict[str, Any]:
        return {"t": SimpleNamespace(name="t", topic_id="id", keys=KEYS)}


CLUSTER: Any = Cluster()


@pytest.mark.parametrize(
    ("stop", "ends"),
    [
        (Latest(), [20, 9, 5]),
        (AtTime(8), [8, 8, 5]),
        (AtTime(9), [9, 9, 5]),
        (AtOffsets({"t-0": 7, "t-1": 10, "t-2": 0}), [7, 10, 0]),
    ],
)
def test_where_reading_ends(stop: Stop, ends: list[int]) -> None:
    assert list(stop_offsets(CLUSTER, KEYS, stop, "read_committed").values()) == ends


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ({"t-0": 7, "t-1": 7}, "until= names no offset for t-2: name every partition"),
        ({"t-0": 7, "t-1": 7, "t-2": 5, "t-3": 1}, "until= names 't-3', which is no partition"),
        ({"t-0": 22, "t-1": 7, "t-2": 5}, "wants t-0 up to offset 22, but the broker has records up to 21"),
    ],
)
def test_offsets_that_are_no_end(offsets: dict[str, int], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        stop_offsets(CLUSTER, KEYS, AtOffsets(offsets), "read_committed")


def bounded(interval_ms: int | None) -> list[tuple[int, int, int | None]]:
    enumerator = KafkaSplitEnumerator(
        CLUSTER, Subscription(("t",)), Earliest(), "read_committed", interval_ms, stop=AtTime(8)
    )
    splits = [KafkaSplit("t", "id", 0, 6), KafkaSplit("t", "id", 1, 6, 7)]
    ended = enumerator.bounded([split.state() for split in splits], None)
    found = [KafkaSplit.from_state(each) for each in ended]
    return [(split.partition, split.next_offset, split.stop_offset) for split in found]


def test_splits_of_a_savepoint_get_the_end_if_they_have_none_and_new_partitions_are_read_too() -> None:
    assert bounded(None) == [(0, 6, 8), (1, 6, 7), (2, 5, 5)]
    assert bounded(1_000) == [(0, 6, None), (1, 6, 7)], "a source without an end gives none"
