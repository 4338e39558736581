"""Reading a real broker exactly: from every position, across transactions, up to a bound."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json, Raw, Text
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError, OptionError

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("all_ways")]

SplitsOf = Callable[[KafkaSource], Sequence[SplitState]]


def source(cluster: Any, *topics: str, **options: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=cluster.servers, topics=topics, **{"value": Raw(), **options})


def at(state: SplitState, **position: int | None) -> SplitState:
    return replace(state, position={**state.position, **position})


def values(reading: Any) -> list[bytes]:
    return [row["value"] for _, _, row in reading.rows]


def test_every_position_replays_exactly_across_commits_and_aborts(
    cluster: Any, new_topic: Any, reading: Any, splits_of: SplitsOf
) -> None:
    topic = new_topic("replay")
    expected: list[tuple[int, bytes]] = []
    offset = 0
    for number in range(12):
        batch = [b"%d-%d" % (number, i) for i in range(1 + number % 3)]
        if number % 3 == 0:
            cluster.produce(topic, *batch)
        elif number % 3 == 1:
            cluster.transaction(topic, *batch).abort_transaction(30)
        else:
            cluster.transaction(topic, *batch).commit_transaction(30)
        if number % 3 != 1:
            expected += [(offset + i, value) for i, value in enumerate(batch)]
        offset += len(batch) + (number % 3 != 0)  # a marker takes an offset
        cluster.wait_end(topic, offset)
    bounded = source(cluster, topic, until="latest")
    (split,) = splits_of(bounded)
    assert (split.position["next_offset"], split.position["stop_offset"]) == (0, offset)
    for start in range(offset + 1):
        read = reading(bounded, [at(split, next_offset=start)])
        read.until(lambda read=read: bool(read.finished))
        found = [(o, row["value"]) for _, o, row in read.rows]
        assert found == [(o, value) for o, value in expected if o >= start]
        assert read.positions() == {split.split_id: offset}
        read.reader.close()


def test_a_reader_opened_anew_after_each_poll_reads_each_record_once(
    cluster: Any, new_topic: Any, reading: Any, splits_of: SplitsOf
) -> None:
    """Several polls' worth over unequal partitions; each attempt goes on from the last one's snapshot."""
    topic = new_topic("attempts", partitions=3)
    sizes = {0: 25_000, 1: 700, 2: 0}
    for partition, size in sizes.items():
        cluster.produce(topic, *(b"%d" % i for i in range(size)), partition=partition)
    bounded = source(cluster, topic, until="latest")
    splits = splits_of(bounded)
    found: list[tuple[str, int]] = []
    attempts = 0
    while not all(s.position["next_offset"] >= s.position["stop_offset"] for s in splits):
        read = reading(bounded, splits)
        read.until(lambda read=read: bool(read.rows))
        found += [(name, offset) for name, offset, _ in read.rows]
        splits = read.reader.snapshot()
        read.reader.close()
        attempts += 1
    assert attempts >= 3
    for partition, size in sizes.items():
        assert [offset for name, offset in found if name == f"{topic}-{partition}"] == list(range(size))
    last = reading(bounded, splits)
    last.until(lambda: last.finished == last.splits)
    assert last.rows == []


def test_a_bounded_source_ends_on_empty_and_aborted_partitions(
    cluster: Any, new_topic: Any, reading: Any
) -> None:
    topic = new_topic("bounds", partitions=4)  # 0 is empty
    cluster.transaction(topic, b"gone", partition=1).abort_transaction(30)
    cluster.produce(topic, b"kept", partition=2)
    cluster.transaction(topic, b"gone", b"gone", partition=2).abort_transaction(30)
    cluster.transaction(topic, b"done", partition=3).commit_transaction(30)
    read = reading(source(cluster, topic, until="latest"))
    read.until(lambda: read.finished == read.splits)
    assert sorted(values(read)) == [b"done", b"kept"]


def test_an_open_transaction_is_beyond_the_bound_even_once_it_commits(
    cluster: Any, new_topic: Any, reading: Any, splits_of: SplitsOf
) -> None:
    topic = new_topic("open")
    cluster.produce(topic, b"before")
    producer = cluster.transaction(topic, b"open")
    bounded = source(cluster, topic, until="latest")
    splits = splits_of(bounded)
    assert splits[0].position["stop_offset"] == 1
    first = reading(bounded, splits)
    first.until(lambda: first.finished == first.splits)
    assert values(first) == [b"before"]
    producer.commit_transaction(30)
    cluster.produce(topic, b"after")
    again = reading(bounded, splits)  # a restart keeps the bound
    again.until(lambda: again.finished == again.splits)
    assert values(again) == [b"before"]
    uncommitted = source(cluster, topic, until="latest", isolation="read_uncommitted")
    assert splits_of(uncommitted)[0].position["stop_offset"] == 4


def test_an_unbounded_reader_waits_for_an_open_transaction_and_then_goes_on(
    cluster: Any, new_topic: Any, reading: Any
) -> None:
    topic = new_topic("wait")
    read = reading(source(cluster, topic))
    read.until(lambda: read.at_end == read.splits)
    assert read.rows == []
    producer = cluster.transaction(topic, b"a", b"b")
    for _ in range(5):
        read.poll()
    assert read.rows == []
    producer.commit_transaction(30)
    read.until(lambda: len(read.rows) == 2)
    read.until(lambda: read.at_end == read.splits)
    assert read.positions() == {f"{topic}-0": 3}  # the marker is behind us: lag 0


def test_the_end_is_told_and_taken_back_by_the_next_record(
    cluster: Any, new_topic: Any, reading: Any
) -> None:
    topic = new_topic("ends", partitions=2)
    cluster.produce(topic, b"1")
    read = reading(source(cluster, topic)).to_the_end()
    cluster.produce(topic, b"2")
    fetch = None
    while fetch is None:
        fetch = read.poll()
    assert values(read) == [b"1", b"2"]
    assert f"{topic}-1" in fetch.at_end
    read.to_the_end()


def test_splits_can_be_added_while_others_are_read(
    cluster: Any, new_topic: Any, reading: Any, splits_of: SplitsOf
) -> None:
    topics = [new_topic("one"), new_topic("two", partitions=2)]
    for topic in topics:
        cluster.produce(topic, *(b"%d" % i for i in range(1000)))
    everything = source(cluster, *topics)
    first, *rest = splits_of(everything)
    read = reading(everything, [first]).to_the_end()
    read.reader.add_splits(rest)
    read.splits |= {state.split_id for state in rest}
    read.to_the_end()
    assert read.offsets(f"{topics[0]}-0") == list(range(1000))
    assert read.offsets(f"{topics[1]}-0") == list(range(1000))
    assert [state.split_id for state in read.reader.snapshot()] == [
        first.split_id,
        *(s.split_id for s in rest),
    ]


def test_where_reading_starts(cluster: Any, new_topic: Any, splits_of: SplitsOf) -> None:
    topic = new_topic("starts", partitions=2, config={"retention.ms": "-1"})  # the records are years old
    for i in range(10):
        cluster.produce(topic, b"x", timestamp=1_700_000_000_000 + i * 1000)
    zero, one = f"{topic}-0", f"{topic}-1"

    def starts(start: Any, **options: Any) -> dict[str, int]:
        found = splits_of(source(cluster, topic, start=start, **options))
        return {state.split_id: state.position["next_offset"] for state in found}

    assert starts("earliest") == {zero: 0, one: 0}
    assert starts("latest") == {zero: 10, one: 0}
    assert starts("timestamp:1700000003500") == {zero: 4, one: 0}
    assert starts(dt.datetime.fromtimestamp(1_700_000_003, dt.UTC)) == {zero: 3, one: 0}
    assert starts("timestamp:2099-01-01T00:00:00Z") == {zero: 10, one: 0}
    assert starts({zero: 7, one: 0}) == {zero: 7, one: 0}
    with pytest.raises(DataLossError, match=f"{zero} from offset 11, but the broker has 0 to 10"):
        starts({zero: 11, one: 0})
    with pytest.raises(OptionError, match=f"no offset for {one}"):
        starts({zero: 1})
    with pytest.raises(OptionError, match="no partition"):
        starts({zero: 1, one: 0, f"{topic}-2": 0})


def test_offsets_are_published_for_monitors_and_can_be_a_start(
    cluster: Any, new_topic: Any, reading: Any, splits_of: SplitsOf
) -> None:
    topic = new_topic("lag", partitions=2)
    cluster.produce(topic, b"1", b"2", b"3")
    group = f"group-of-{topic}"
    assert splits_of(source(cluster, topic, start="group", group_id=group))[0].position["next_offset"] == 0
    read = reading(source(cluster, topic, group_id=group)).to_the_end()
    read.reader.publish_offsets(read.reader.snapshot())

    def published() -> list[int]:
        found = splits_of(source(cluster, topic, start="group", group_id=group))
        return [state.position["next_offset"] for state in found]

    read.until(lambda: published() == [3, 0])


def test_skipping_to_the_end_leaves_out_what_is_there(
    cluster: Any, new_topic: Any, splits_of: SplitsOf
) -> None:
    topic = new_topic("skip")
    everything = source(cluster, topic, value=Text())
    splits = splits_of(everything)
    cluster.produce(topic, b"1", b"2")
    enumerator: Any = everything.open_enumerator("job", SystemClock())
    (skipped,) = enumerator.skip_to_end(splits)
    assert skipped.position["next_offset"] == 2
    enumerator.close()


def test_only_the_columns_asked_for_are_there(cluster: Any, new_topic: Any, reading: Any) -> None:
    topic = new_topic("columns")
    cluster.produce(topic, b'{"user":"u","amount":7}', key=b"k", headers=[("h", b"1"), ("h", None)])
    schema = pa.schema([pa.field("user", pa.string(), False), pa.field("amount", pa.int64(), False)])
    full = source(
        cluster,
        topic,
        value=Json(schema),
        key=Text("key"),
        headers="headers",
        timestamp="written",
        topic_column="topic",
        partition_column="partition",
        offset_column="at",
    )
    assert full.schema.names == ["key", "user", "amount", "headers", "written", "topic", "partition", "at"]
    read = reading(full).to_the_end()
    ((_, _, row),) = read.rows
    assert row.pop("written").timestamp() * 1000 == pytest.approx(read.timestamps[0])
    assert row == {
        "key": "k",
        "user": "u",
        "amount": 7,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
        "topic": topic,
        "partition": 0,
        "at": 0,
    }
    part = full.project(frozenset({"amount", "at"}))
    assert part.schema.names == ["amount", "at"]
    assert [row for _, _, row in reading(part).to_the_end().rows] == [{"amount": 7, "at": 0}]
