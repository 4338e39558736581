"""RowEncoder: rows as the records of a topic."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.partitioner import partition_of_key
from onceflow.connectors.kafka.produce.row_encoder import HEADERS_TYPE, RowEncoder
from onceflow.runtime.arrays.recycled_memory import RecycledMemory
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Records, RowKind
from onceflow.sinks.kafka import KafkaSink

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("h", HEADERS_TYPE), ("p", pa.int32())])


def sink(**options: Any) -> KafkaSink:
    return KafkaSink("localhost:9092", "out", **options)


def encode(
    described: KafkaSink,
    rows: list[dict[str, Any]],
    partitions: int = 4,
    counts: list[int] | None = None,
    **side: Any,
) -> pa.RecordBatch:
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    encoder = RowEncoder(described.record_parts, "out", SCHEMA, RecycledMemory())
    return encoder.encode(Records(batch, **side), partitions, counts or [len(rows)], unkeyed=2)


def test_rows_become_records_sorted_by_the_partition_of_their_key() -> None:
    users = [f"u{n % 9}" for n in range(100)]
    rows = encode(sink(key="user"), [{"user": u, "n": n} for n, u in enumerate(users)])
    assert rows.schema == PRODUCE_SCHEMA
    partition = rows["partition"].to_numpy()
    assert (np.diff(partition) >= 0).all()
    assert (partition == partition_of_key(rows["key"], 4)).all()
    values = [json.loads(value) for value in rows["value"].to_pylist()]
    assert [v["user"].encode() for v in values] == rows["key"].to_pylist()
    for user in set(users):  # the order of a key's rows is kept
        numbers = [v["n"] for v in values if v["user"] == user]
        assert len(numbers) > 1
        assert numbers == sorted(numbers)


def test_rows_without_a_key_go_to_the_partition_whose_turn_it_is() -> None:
    rows = encode(sink(key="user"), [{"user": None, "n": 1}, {"user": "a", "n": 2}, {"user": "", "n": 3}])
    by_key = dict(zip(rows["key"].to_pylist(), rows["partition"].to_pylist(), strict=True))
    assert by_key[None] == 2
    assert by_key[b""] == int(partition_of_key(pa.array([b""], pa.large_binary()), 4)[0])


def test_rows_without_a_key_that_came_together_stay_together() -> None:
    rows = encode(sink(), [{"user": None, "n": n} for n in range(9)], counts=[2, 1, 3, 1, 2])
    came = [(row["partition"], json.loads(row["value"])["n"]) for row in rows.to_pylist()]
    assert came == [(0, 3), (0, 4), (0, 5), (1, 6), (2, 0), (2, 1), (2, 7), (2, 8), (3, 2)]


def test_partitioner_column_headers_and_json_key() -> None:
    header = [{"key": "trace", "value": b"1"}]
    described = sink(key=["user", "n"], key_format=Json(), partitioner="p", headers="h")
    rows = encode(
        described, [{"user": "a", "n": 1, "h": header, "p": 3}, {"user": "b", "n": 2, "h": None, "p": 0}]
    )
    assert rows["partition"].to_pylist() == [0, 3]
    assert rows["headers"].to_pylist() == [None, header]
    assert json.loads(rows["key"][1].as_py()) == {"user": "a", "n": 1}


@pytest.mark.parametrize("partition", [-1, 4, None])
def test_partition_that_the_topic_does_not_have_is_an_error(partition: int | None) -> None:
    with pytest.raises(Fatal, match="topic 'out' has partitions 0 to 3"):
        encode(sink(partitioner="p"), [{"p": partition}])


def test_timestamps_are_the_broker_side_clock_unless_event_time_is_asked_for() -> None:
    times = np.array([5, 6], dtype=np.int64)
    two = [{"n": 1}, {"n": 2}]
    assert encode(sink(), two, event_time=times)["timestamp"].to_pylist() == [None, None]
    assert encode(sink(timestamp="event-time"), two, event_time=times)["timestamp"].to_pylist() == [5, 6]
    with pytest.raises(Fatal, match="needs a stream with event time"):
        encode(sink(timestamp="event-time"), two)
    with pytest.raises(Fatal, match="before 1970"):
        encode(sink(timestamp="event-time"), two, event_time=times - 10)


KINDS = [RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE, RowKind.INSERT]


def changes(users: list[str | None], kinds: list[RowKind] | None = None) -> dict[str, Any]:
    """Rows with numbers, and their kinds as Records takes them."""
    rows = [{"user": user, "n": n} for n, user in enumerate(users)]
    return {"rows": rows, "kind": None if kinds is None else np.array(kinds, np.int8)}


def test_a_delete_is_a_record_without_a_value_and_what_was_before_is_left_out() -> None:
    upsert = sink(key="user", upsert=True)
    rows = encode(upsert, **changes(["a", "a", "a", "b", "a"], KINDS), partitions=1)
    said = [(row["key"], row["value"] and json.loads(row["value"])["n"]) for row in rows.to_pylist()]
    assert said == [(b"a", 0), (b"a", 2), (b"b", None), (b"a", 4)]


def test_deletes_go_to_the_partition_of_their_key_in_the_order_in_which_they_came() -> None:
    users = [f"u{n % 7}" for n in range(70)]
    kinds = [RowKind.DELETE if n % 3 == 0 else RowKind.INSERT for n in range(70)]
    rows = encode(sink(key="user", upsert=True), **changes(users, kinds)).to_pylist()
    for user in sorted(set(users)):
        of_user = [row for row in rows if row["key"] == user.encode()]
        assert len({row["partition"] for row in of_user}) == 1
        assert [row["value"] is None for row in of_user] == [
            kind == RowKind.DELETE for at, kind in zip(users, kinds, strict=True) if at == user
        ]


def test_only_what_was_before_is_no_record() -> None:
    rows = encode(sink(key="user", upsert=True), **changes(["a"], [RowKind.UPDATE_BEFORE]))
    assert rows.num_rows == 0


def test_an_upsert_without_a_key_is_refused_by_its_columns() -> None:
    with pytest.raises(Fatal, match=r"topic 'out' has no key \(user is null\)"):
        encode(sink(key="user", upsert=True), **changes(["a", None]))
