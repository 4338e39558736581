"""Offsets in Spark's checkpoint, the limit of a batch, and the cutting into tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.errors import Fatal
from onceflow.structured_streaming.source_offsets import (
    OffsetRange,
    Offsets,
    combine_ranges,
    limit_offsets,
    split_ranges,
)

Key = tuple[str, int]
KEYS = st.tuples(st.sampled_from(["a", "b.c", "z-1"]), st.integers(0, 12))


def test_offsets_are_written_as_sparks_own_source_writes_them_with_the_topic_ids_beside() -> None:
    offsets = Offsets({("b", 10): 3, ("b", 9): 2, ("a", 0): 7}, {"b": "id-b", "a": "id-a"})
    assert json.dumps(offsets.json()) == (
        '{"a": {"0": 7}, "b": {"9": 2, "10": 3}, "#topic_ids": {"a": "id-a", "b": "id-b"}}'
    )


@given(
    st.dictionaries(KEYS, st.integers(0, 1 << 60)),
    st.dictionaries(st.sampled_from("ab"), st.text()),
    st.dictionaries(KEYS, st.integers(0, 1 << 30)),
)
def test_what_is_written_is_read_back_and_equal_offsets_are_equal_texts(
    offsets: dict[Key, int], ids: dict[str, str], epochs: dict[Key, int]
) -> None:
    one = Offsets(offsets, ids, epochs)
    reversed_ = (dict(reversed(each.items())) for each in (offsets, ids, epochs))
    other = Offsets(*reversed_)  # type: ignore[arg-type]
    text = json.dumps(one.json())
    assert Offsets.from_json(json.loads(text)) == one
    assert json.dumps(other.json()) == text


def test_offsets_of_sparks_own_kafka_source_are_understood() -> None:
    assert Offsets.from_json({"events": {"0": 17, "1": 5}}) == Offsets({("events", 0): 17, ("events", 1): 5})


@pytest.mark.parametrize(
    "written", [17, {"offset": 3}, {"events": {"0": "x"}}, {"events": {"0": -1}}, {"events": {"0": True}}]
)
def test_offsets_of_another_source_are_refused(written: object) -> None:
    with pytest.raises(Fatal, match="another source wrote it"):
        Offsets.from_json(written)


# --- The limit of a batch -------------------------------------------------------------------------


def test_partitions_give_in_proportion_so_that_they_run_out_together() -> None:
    starts = {("t", 0): 100, ("t", 1): 0}
    ends = {("t", 0): 400, ("t", 1): 600}
    assert limit_offsets(starts, ends, 90) == {("t", 0): 130, ("t", 1): 60}


@given(
    st.dictionaries(KEYS, st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), min_size=1),
    st.integers(1, 20_000),
)
def test_a_limited_batch_is_within_what_there_is_and_within_the_limit_and_never_stands_still(
    sizes: dict[Key, tuple[int, int]], limit: int
) -> None:
    starts = {key: start for key, (start, _) in sizes.items()}
    ends = {key: start + size for key, (start, size) in sizes.items()}
    limited = limit_offsets(starts, ends, limit)
    taken = {key: limited[key] - starts[key] for key in sizes}
    assert limited.keys() == ends.keys()
    assert all(0 <= taken[key] <= size for key, (_, size) in sizes.items())
    assert all(taken[key] > 0 for key, (_, size) in sizes.items() if size)
    total = sum(size for _, size in sizes.values())
    assert sum(taken.values()) <= max(limit, limit + len(sizes) - 1)
    if total <= limit:
        assert limited == ends
    else:
        assert all(taken[key] < size for key, (_, size) in sizes.items() if size > 1), "used up too early"


@given(st.integers(1, 4), st.integers(1, 3_000), st.integers(4, 500))
def test_the_last_record_of_a_partition_is_not_read_before_the_others_last_batch(
    partitions: int, size: int, limit: int
) -> None:
    """Partitions of one size: a record that closes windows at the end of one closes none of another's."""
    starts = {("t", p): 0 for p in range(partitions)}
    ends = {("t", p): size for p in range(partitions)}
    while starts != ends:
        starts = limit_offsets(starts, ends, limit)
        done = [starts[key] == ends[key] for key in ends]
        assert all(done) or not any(done)


def test_a_partition_that_lies_behind_its_start_takes_nothing_from_the_others() -> None:
    starts = {("t", 0): 50, ("t", 1): 0}
    ends = {("t", 0): 20, ("t", 1): 100}
    assert limit_offsets(starts, ends, 10) == {("t", 0): 20, ("t", 1): 10}


# --- Tasks ----------------------------------------------------------------------------------------


def piece(partition: int, start: int, stop: int) -> OffsetRange:
    return OffsetRange("t", "id", partition, start, stop)


def test_a_range_is_a_task_and_an_empty_one_is_none() -> None:
    assert split_ranges([piece(0, 5, 9), piece(1, 3, 3), piece(2, 9, 4)], None, None) == [piece(0, 5, 9)]


def test_more_tasks_than_partitions_cut_the_large_ones() -> None:
    found = split_ranges([piece(0, 0, 900), piece(1, 0, 100)], 10, None)
    assert len(found) == 10
    assert [each.size for each in found] == [100] * 10


def test_a_task_has_at_least_one_offset_however_many_are_asked_for() -> None:
    assert split_ranges([piece(0, 5, 7)], 10, None) == [piece(0, 5, 6), piece(0, 6, 7)]


def test_no_task_is_larger_than_it_may_be() -> None:
    found = split_ranges([piece(0, 10, 260)], None, 100)
    assert [each.size for each in found] == [83, 83, 84]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1_000)), max_size=5),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 300),
)
def test_every_offset_is_in_exactly_one_task(
    spans: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    whole = [piece(p, start, start + size) for p, (start, size) in enumerate(spans)]
    found = split_ranges(whole, partitions_min, records_max)
    assert all(each.size > 0 for each in found)
    assert records_max is None or all(each.size <= records_max for each in found)
    covered: dict[int, list[tuple[int, int]]] = {}
    for each in found:
        covered.setdefault(each.partition, []).append((each.next_offset, each.stop_offset))
    for each in whole:
        pieces = covered.get(each.partition, [])
        bounds = [each.next_offset, *(stop for _, stop in pieces)]
        assert [start for start, _ in pieces] == bounds[:-1]
        assert bounds[-1] == each.stop_offset or each.size == 0


def test_a_task_reads_as_many_small_partitions_as_are_no_more_than_the_limit_together() -> None:
    found = combine_ranges([piece(0, 0, 40), piece(1, 0, 60), piece(2, 0, 10), piece(3, 5, 500)], 100)
    assert [[each.partition for each in task] for task in found] == [[0, 1], [2], [3]]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 200)), max_size=8),
    st.integers(1, 300),
)
def test_combining_leaves_no_range_out_and_gives_a_task_no_partition_twice(
    spans: list[tuple[int, int]], offsets_max: int
) -> None:
    ranges = [piece(partition, 7, 7 + size) for partition, size in spans]
    tasks = combine_ranges(ranges, offsets_max)
    assert [each for task in tasks for each in task] == ranges
    for task in tasks:
        assert len({each.partition for each in task}) == len(task)
        assert len(task) == 1 or sum(each.size for each in task) <= offsets_max
