"""What a stream reads next, decided against a cluster that the test holds in its hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from onceflow.connectors.kafka.metadata import LogEnd, PartitionKey, Topic
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import DataLossError, OptionError
from onceflow.structured_streaming.source_offsets import OffsetRange, Offsets
from onceflow.structured_streaming.source_options import source_options
from onceflow.structured_streaming.source_planning import Planner
from onceflow.structured_streaming.source_stream import (
    APART_MS,
    DISCOVERY_INTERVAL_MS,
    SLOW_BATCH_MS,
    TASK_OFFSETS,
    StreamPlanner,
)


@dataclass
class Log:
    """One partition: the first offset there, the last stable one, and the end."""

    low: int = 0
    stable: int = 0
    high: int = 0
    at_time: int = -1


@dataclass
class FakeCluster:
    """Topics by name: their id and their logs."""

    ids: dict[str, str] = field(default_factory=dict)
    logs: dict[PartitionKey, Log] = field(default_factory=dict)
    epochs: dict[PartitionKey, int] = field(default_factory=dict)
    descriptions: int = 0

    def add(self, topic: str, *ends: int, topic_id: str = "id-1") -> None:
        self.ids[topic] = topic_id
        for partition, end in enumerate(ends):
            self.logs[topic, partition] = Log(0, end, end)

    def remove(self, topic: str) -> None:
        del self.ids[topic]
        self.logs = {key: log for key, log in self.logs.items() if key[0] != topic}

    def topic_names(self) -> list[str]:
        return sorted(self.ids)

    def describe(self, names: Sequence[str]) -> dict[str, Topic]:
        self.descriptions += 1
        return {
            name: Topic(name, self.ids[name], tuple(p for t, p in self.logs if t == name))
            for name in names
            if name in self.ids
        }

    def offsets(self, wanted: Iterable[PartitionKey], at: Any, isolation: str) -> dict[PartitionKey, int]:
        def one(log: Log) -> int:
            if at == "earliest":
                return log.low
            if at == "latest":
                return log.stable if isolation == "read_committed" else log.high
            return log.at_time

        return {key: one(self.logs[key]) for key in wanted}

    def ends(self, wanted: Iterable[PartitionKey], isolation: str) -> dict[PartitionKey, LogEnd]:
        found = self.offsets(wanted, "latest", isolation)
        return {key: LogEnd(offset, self.epochs.get(key)) for key, offset in found.items()}


class Query:
    """A query that is planned and nothing more; `restart` forgets all but the checkpoint."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        self.cluster = cluster
        self.clock = ManualClock()
        self.options = {"bootstrap_servers": "b:1", "subscribe": "t", **options}
        self.restart()

    def restart(self) -> None:
        checked = source_options(self.options, "readStream")
        self.limit = checked.offsets_max
        self.stream = StreamPlanner(checked, Planner(checked, self.cluster), self.clock)

    def next(self, start: Offsets) -> Offsets:
        return self.stream.latest(start, self.limit)

    def tasks(self, start: Offsets, end: Offsets) -> list[tuple[str, int, int, int]]:
        ranges = [each for task in self.stream.tasks(start, end) for each in task]
        return [(r.topic, r.partition, r.next_offset, r.stop_offset) for r in ranges]


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.add("t", 10, 20)
    return made


def test_a_stream_begins_at_the_end_and_a_batch_at_the_beginning_unless_told(cluster: FakeCluster) -> None:
    assert Query(cluster).stream.initial().next_offset == {("t", 0): 10, ("t", 1): 20}
    batch = source_options({"bootstrap_servers": "b:1", "subscribe": "t"}, "read")
    planner = Planner(batch, cluster)
    start = planner.initial()
    assert start.next_offset == {("t", 0): 0, ("t", 1): 0}
    assert planner.final(start).next_offset == {("t", 0): 10, ("t", 1): 20}


def test_a_beginning_at_the_end_is_written_down_before_anything_is_read(cluster: FakeCluster) -> None:
    query = Query(cluster)
    begin = query.stream.initial()
    cluster.logs["t", 0] = Log(0, 15, 15)
    first = query.next(begin)
    assert first == begin
    assert query.tasks(begin, first) == []
    query.restart()  # before Spark has committed the first batch: it asks for the beginning anew
    later = query.stream.initial()
    assert later.next_offset["t", 0] == 15
    assert query.tasks(later, first) == []
    second = query.next(first)
    assert query.tasks(first, second) == [("t", 0, 10, 15)]


def test_a_batch_ends_at_the_last_stable_offset(cluster: FakeCluster) -> None:
    cluster.logs["t", 0] = Log(0, 7, 10)
    query = Query(cluster, startingOffsets="earliest")
    assert query.next(query.stream.initial()).next_offset == {("t", 0): 7, ("t", 1): 20}


def test_a_limit_holds_for_each_batch(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    start = query.stream.initial()
    end = query.next(start)
    assert end.next_offset == {("t", 0): 5, ("t", 1): 10}
    assert query.next(end).next_offset == {("t", 0): 10, ("t", 1): 20}


def test_available_now_ends_at_what_was_there(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    query.stream.stop_at_present()
    cluster.logs["t", 0] = Log(0, 1_000, 1_000)
    cluster.add("t", 1_000, 20, 500)
    position = query.stream.initial()
    for _ in range(5):
        position = query.next(position)
    assert query.next(position) == position
    assert {key: end for key, end in position.next_offset.items() if end} == {("t", 0): 10, ("t", 1): 20}


def test_available_now_reads_partitions_that_were_added_while_the_query_was_down(
    cluster: FakeCluster,
) -> None:
    written = Offsets({("t", 0): 10}, {"t": "id-1"})
    query = Query(cluster)
    query.stream.stop_at_present()
    end = query.next(written)
    last = query.next(end)
    assert query.tasks(end, last) == [("t", 1, 0, 20)]
    assert query.next(last) == last


def test_a_new_partition_is_written_down_with_its_beginning_and_then_read(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    end = query.next(query.stream.initial())
    cluster.add("t", 10, 20, 30)
    query.clock.advance(DISCOVERY_INTERVAL_MS)
    found = query.next(end)
    assert found.next_offset == {("t", 0): 10, ("t", 1): 20, ("t", 2): 0}
    assert query.tasks(end, found) == []
    assert query.tasks(found, query.next(found)) == [("t", 2, 0, 30)]


def test_a_query_with_nothing_to_read_looks_for_partitions_once_in_a_while(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    end = query.next(query.stream.initial())
    query.next(end)
    before = cluster.descriptions
    for _ in range(10):
        assert query.next(end) == end
    assert cluster.descriptions == before
    query.clock.advance(DISCOVERY_INTERVAL_MS)
    query.next(end)
    assert cluster.descriptions > before


def test_a_partition_whose_first_records_are_gone_before_it_was_seen_stops_the_query(
    cluster: FakeCluster,
) -> None:
    query = Query(cluster, startingOffsets="earliest")
    end = query.next(query.stream.initial())
    cluster.add("t", 10, 20, 30)
    cluster.logs["t", 2].low = 3
    query.clock.advance(DISCOVERY_INTERVAL_MS)
    with pytest.raises(DataLossError, match="t-2 was added to its topic, and its first 3 records"):
        query.next(end)


# --- What is gone ---------------------------------------------------------------------------------


def test_a_topic_made_anew_stops_the_query_at_once_when_it_has_something_new(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    end = query.next(query.stream.initial())
    cluster.add("t", 11, 20, topic_id="id-2")
    with pytest.raises(DataLossError, match=r"'t' has been deleted and made anew .* set failOnDataLoss to"):
        query.next(end)


def test_a_planned_batch_is_not_read_from_a_topic_made_anew(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    start = query.stream.initial()
    end = query.next(start)
    query.restart()
    cluster.add("t", 10, 20, topic_id="id-2")
    with pytest.raises(DataLossError, match="made anew"):
        query.tasks(start, end)


def test_a_deleted_topic_stops_the_query(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest", subscribe="t,u")
    cluster.add("u", 5)
    end = query.next(query.stream.initial())
    cluster.remove("u")
    query.clock.advance(DISCOVERY_INTERVAL_MS)
    with pytest.raises(DataLossError, match="topic 'u' has been deleted; to go on"):
        query.next(end)


def test_a_topic_that_is_left_out_of_the_subscription_is_told(cluster: FakeCluster) -> None:
    cluster.add("u", 5)
    query = Query(cluster)
    with pytest.raises(DataLossError, match="topic 'u' is in the checkpoint, and the query does not read"):
        query.next(Offsets({("t", 0): 10, ("t", 1): 20, ("u", 0): 5}, {"t": "id-1", "u": "id-1"}))


def test_without_fail_on_data_loss_a_topic_made_anew_is_read_from_its_beginning(
    cluster: FakeCluster,
) -> None:
    query = Query(cluster, startingOffsets="earliest", failOnDataLoss="false")
    end = query.next(query.stream.initial())
    cluster.add("t", 4, 0, topic_id="id-2")
    query.clock.advance(DISCOVERY_INTERVAL_MS)
    found = query.next(end)
    assert found == Offsets({("t", 0): 0, ("t", 1): 0}, {"t": "id-2"})
    assert query.tasks(end, found) == []
    assert query.tasks(found, query.next(found)) == [("t", 0, 0, 4)]


def test_a_log_that_was_cut_stops_the_query_but_a_start_beyond_an_open_transaction_waits(
    cluster: FakeCluster,
) -> None:
    query = Query(cluster)
    start = Offsets({("t", 0): 10, ("t", 1): 20}, {"t": "id-1"})
    cluster.logs["t", 0] = Log(0, 6, 10)
    assert query.next(start) == start
    cluster.logs["t", 0] = Log(0, 6, 6)
    with pytest.raises(DataLossError, match="t-0 has to go on at offset 10, but the broker's log ends at 6"):
        query.next(start)


def test_a_first_batch_whose_records_are_gone_when_it_is_read_again_is_told(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    end = query.next(query.stream.initial())
    query.restart()
    cluster.logs["t", 0] = Log(12, 15, 15)
    with pytest.raises(DataLossError, match="first batch was to end at offset 10 of t-0"):
        query.tasks(query.stream.initial(), end)


# --- Other starts ---------------------------------------------------------------------------------


def test_a_checkpoint_of_sparks_own_source_goes_on_and_gets_topic_ids(cluster: FakeCluster) -> None:
    query = Query(cluster)
    start = Offsets.from_json({"t": {"0": 4, "1": 20}})
    end = query.next(start)
    assert end == Offsets({("t", 0): 10, ("t", 1): 20}, {"t": "id-1"})
    assert query.tasks(start, end) == [("t", 0, 4, 10)]


def test_a_batch_that_sparks_own_source_planned_is_read(cluster: FakeCluster) -> None:
    planned = Offsets.from_json({"t": {"0": 8, "1": 20}})
    start = Offsets.from_json({"t": {"0": 4, "1": 20}})
    assert Query(cluster).stream.tasks(start, planned) == [(OffsetRange("t", "id-1", 0, 4, 8),)]


def test_offsets_that_the_user_names_are_checked(cluster: FakeCluster) -> None:
    def begin(offsets: str) -> dict[PartitionKey, int]:
        return dict(Query(cluster, startingOffsets=offsets).stream.initial().next_offset)

    assert begin('{"t": {"0": 4, "1": -1}}') == {("t", 0): 4, ("t", 1): 20}
    assert begin('{"t": {"0": -2, "1": 7}}') == {("t", 0): 0, ("t", 1): 7}
    with pytest.raises(OptionError, match="startingOffsets has no offset for t-1"):
        begin('{"t": {"0": 4}}')
    with pytest.raises(OptionError, match="startingOffsets names t-2, which is not read"):
        begin('{"t": {"0": 4, "1": 7, "2": 0}}')
    with pytest.raises(DataLossError, match="wants t-0 at offset 11, but the broker has 0 to 10"):
        begin('{"t": {"0": 11, "1": 7}}')


def test_a_time_is_a_place_and_none_is_an_error_unless_told(cluster: FakeCluster) -> None:
    cluster.logs["t", 0].at_time = 6
    with pytest.raises(OptionError, match="t-1 has no record at or after 1700000000000 ms"):
        Query(cluster, startingTimestamp="1700000000000").stream.initial()
    query = Query(cluster, startingTimestamp="1700000000000", startingOffsetsByTimestampStrategy="latest")
    assert query.stream.initial().next_offset == {("t", 0): 6, ("t", 1): 20}


def test_a_batch_ends_where_it_is_told(cluster: FakeCluster) -> None:
    given = {"bootstrap_servers": "b:1", "subscribe": "t", "endingOffsets": '{"t":{"0":-1,"1":9}}'}
    planner = Planner(source_options(given, "read"), cluster)
    assert planner.final(planner.initial()).next_offset == {("t", 0): 10, ("t", 1): 9}


def test_a_missing_topic_is_told_with_the_nearest_one(cluster: FakeCluster) -> None:
    cluster.add("purchases", 1)
    with pytest.raises(OptionError, match=r"topic 'purchase' does not exist .did you mean 'purchases'"):
        Query(cluster, subscribe="purchase").stream.initial()
    told = r"topics that do not exist: 'purchase' \(did you mean 'purchases'\?\), 'q'; create them or correct"
    with pytest.raises(OptionError, match=told):
        Query(cluster, subscribe="purchase,t,q").stream.initial()


def test_assigned_partitions_are_read_and_no_others(cluster: FakeCluster) -> None:
    options = {"bootstrap_servers": "b:1", "assign": '{"t":[1]}', "startingOffsets": "earliest"}
    planner = Planner(source_options(options, "readStream"), cluster)
    assert planner.initial().next_offset == {("t", 1): 0}
    options["assign"] = '{"t":[7]}'
    with pytest.raises(OptionError, match="assign names t-7, and there is no such partition"):
        Planner(source_options(options, "readStream"), cluster).initial()


def test_a_pattern_finds_topics_that_come_later(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    query.options = {"bootstrap_servers": "b:1", "subscribePattern": "t.?", "startingOffsets": "earliest"}
    query.restart()
    end = query.next(query.stream.initial())
    cluster.add("t2", 3)
    cluster.add("other", 3)
    query.clock.advance(DISCOVERY_INTERVAL_MS)
    found = query.next(end)
    assert query.tasks(found, query.next(found)) == [("t2", 0, 0, 3)]


def test_an_older_spark_that_tells_no_start_begins_where_the_first_answer_was(cluster: FakeCluster) -> None:
    query = Query(cluster)
    first = query.stream.latest_of_all()
    cluster.logs["t", 0] = Log(0, 15, 15)
    assert query.stream.initial() == first
    assert query.tasks(first, query.stream.latest_of_all()) == [("t", 0, 10, 15)]


def test_what_was_read_is_remembered_with_the_leaders_epoch(cluster: FakeCluster) -> None:
    cluster.epochs = {("t", 0): 3, ("t", 1): 3}
    query = Query(cluster, startingOffsets="earliest")
    start = query.stream.initial()
    end = query.next(start)
    assert end.leader_epochs == {("t", 0): 3, ("t", 1): 3}
    assert {each.leader_epoch for task in query.stream.tasks(start, end) for each in task} == {None}
    cluster.logs["t", 0] = Log(0, 15, 15)
    cluster.epochs = {("t", 0): 5, ("t", 1): 5}
    later = query.next(Offsets.from_json(end.json()))
    assert later.leader_epochs == {("t", 0): 5, ("t", 1): 3}
    assert query.stream.tasks(end, later) == [(OffsetRange("t", "id-1", 0, 10, 15, 3),)]


def test_a_new_leader_is_nothing_to_read(cluster: FakeCluster) -> None:
    query = Query(cluster, startingOffsets="earliest")
    old = Offsets({("t", 0): 10, ("t", 1): 20}, {"t": "id-1"})
    cluster.epochs = {("t", 0): 5, ("t", 1): 5}
    assert query.next(old).json() == old.json()
    known = Offsets(old.next_offset, old.topic_ids, {("t", 0): 2, ("t", 1): 2})
    assert query.next(known).json() == known.json()


# --- Tasks ----------------------------------------------------------------------------------------


def sizes(query: Query, start: Offsets, end: Offsets) -> list[int]:
    """How many partitions each task reads."""
    return [len(task) for task in query.stream.tasks(start, end)]


def test_a_small_batch_is_one_task_and_a_large_one_a_task_for_each_partition(cluster: FakeCluster) -> None:
    cluster.add("t", 10, 10, 10)
    query = Query(cluster, startingOffsets="earliest")
    start = query.stream.initial()
    assert sizes(query, start, query.next(start)) == [3]
    cluster.add("t", *[TASK_OFFSETS] * 3)
    assert sizes(query, start, query.next(start)) == [1, 1, 1]


@pytest.mark.parametrize("option", [{"minPartitions": "2"}, {"maxRecordsPerPartition": "10"}])
def test_what_the_user_says_of_tasks_holds(cluster: FakeCluster, option: dict[str, str]) -> None:
    cluster.add("t", 10, 10)
    query = Query(cluster, startingOffsets="earliest", **option)
    start = query.stream.initial()
    assert sizes(query, start, query.next(start)) == [1, 1]


def test_after_a_slow_batch_partitions_have_their_own_tasks_for_a_while(cluster: FakeCluster) -> None:
    cluster.add("t", 10, 10)
    query = Query(cluster, startingOffsets="earliest")
    start = query.stream.initial()

    def run(took_ms: float) -> list[int]:
        found = sizes(query, start, query.next(start))
        query.clock.advance(took_ms)
        return found

    for _ in range(2):
        assert run(SLOW_BATCH_MS + 1) == [2], "the first batches are slow since processes start"
    assert run(SLOW_BATCH_MS + 1) == [2]
    assert run(APART_MS) == [1, 1]
    query.next(start)
    query.clock.advance(APART_MS + 1)
    assert run(1) == [2]
    assert run(1) == [2]
