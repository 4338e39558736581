"""Batches of a stream: each record is in one, whatever order its time of arrival has in the shard."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.connectors.kinesis.batches import KinesisPlanner, batch_of
from onceflow.connectors.kinesis.client import StreamPlace
from onceflow.connectors.kinesis.enumerator import Bounds
from onceflow.connectors.kinesis.fetches import entries_of
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import BatchLimit
from onceflow.runtime.errors import OptionError


def record(number: int, arrival_ms: int) -> dict[str, Any]:
    at = dt.datetime.fromtimestamp(arrival_ms / 1000, dt.UTC)
    key = {"SequenceNumber": str(number), "PartitionKey": "k", "Data": b"{}"}
    return {**key, "ApproximateArrivalTimestamp": at}


def read_batch(arrivals: Sequence[int], from_ms: int | None, until_ms: int, at_once: int) -> list[int]:
    """The records of a batch, as a reader fetches them: so many in one answer, and resumed after each."""
    position = replace(
        batch_of("s", 0, from_ms, until_ms),
        shard_id="shardId-000000000000",
        first_hash="0",
        last_hash="9" * 39,
    )
    starts_ms = position.from_ms
    begin = next((n for n, at in enumerate(arrivals) if starts_ms is None or at >= starts_ms), len(arrivals))
    found: list[int] = []
    for place in range(begin, len(arrivals), at_once):
        numbers = range(place, min(place + at_once, len(arrivals)))
        entries, is_over = entries_of([record(n, arrivals[n]) for n in numbers], position)
        found += [int(entry.sequence) for entry in entries if entry.data is not None]
        position = position.begun_with(entry.arrival_ms for entry in entries)
        if is_over:
            break
    return found


@given(
    st.lists(st.integers(1_000_000, 1_000_040), max_size=12),
    st.sets(st.integers(1_000_000, 1_000_040), max_size=6),
    st.integers(1, 4),
)
@example([1_000_000, 1_000_005, 1_000_003], {1_000_004}, 1)
@example([1_000_000, 1_000_005, 1_000_003, 1_000_006], {1_000_004}, 4)
def test_each_record_is_in_one_batch_whatever_its_time(
    arrivals: Sequence[int], ends: set[int], at_once: int
) -> None:
    places = [None, *sorted(ends), 2_000_000]
    found: list[int] = []
    for begin, end in itertools.pairwise(places):
        assert end is not None
        batch = read_batch(arrivals, begin, end, at_once)
        assert batch == read_batch(arrivals, begin, end, 5), "it is the same in other answers"
        found += batch
    assert found == list(range(len(arrivals)))


def test_what_came_far_too_late_by_its_time_counts_in_its_place() -> None:
    """Ten seconds earlier than its neighbours: none of its own batch's, all of the place's."""
    arrivals = [1_000_000, 1_020_000, 1_010_000, 1_030_000]
    assert read_batch(arrivals, None, 1_015_000, 10) == [0]
    assert read_batch(arrivals, 1_015_000, 1_040_000, 10) == [1, 2, 3]


def test_a_batch_says_where_it_begins_when_it_is_gone() -> None:
    assert batch_of("s", 0, 1_000, 2_000).behind == "behind what arrived by 1970-01-01T00:00:01+00:00"
    assert batch_of("s", 0, None, 2_000).behind == "at its beginning"


def test_an_end_of_the_stream_makes_no_sense_in_batches() -> None:
    with pytest.raises(OptionError, match="has no until: leave it out"):
        KinesisPlanner(
            StreamPlace("s", "r", None), Bounds(None, False, 1, False), SystemClock(), BatchLimit()
        )
