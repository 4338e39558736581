"""Rows of a query become records: columns, formats, keys, headers, and the partition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import EncodeError
from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.produce.partitioner import partition_of_key
from onceflow.runtime.errors import Fatal, GraphError, UsageError
from onceflow.structured_streaming.partitions import PartitionedOutput, must_exist
from onceflow.structured_streaming.sink_options import SinkOptions, sink_options
from onceflow.structured_streaming.sink_rows import RowEncoder


def options(**given: str) -> SinkOptions:
    return sink_options({"bootstrap_servers": "b:1", **given}, "write")


def encoded(batch: pa.RecordBatch, **given: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = RowEncoder(options(**given), batch.schema).encode(batch).to_pylist()
    return rows


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_columns_as_sparks_own_sink_names_them() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["a", None]),
            "value": pa.array([b"1", None], pa.binary()),
            "topic": pa.array(["t1", "t2"]),
            "partition": pa.array([None, 3], pa.int32()),
            "headers": pa.array([[{"key": "h", "value": b"x"}], None], HEADERS),
            "offset": pa.array([5, 6]),
        }
    )
    rows = encoded(batch)
    assert [(r["topic"], r["partition"], r["key"], r["value"]) for r in rows] == [
        ("t1", -1, b"a", b"1"),
        ("t2", 3, None, None),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"x"}]
    assert rows[1]["headers"] is None


def test_option_topic_goes_before_the_column() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["x"], "topic": ["column"]})
    assert encoded(batch, topic="option")[0]["topic"] == "option"


def test_any_columns_as_json_with_a_key() -> None:
    batch = pa.RecordBatch.from_pydict({"user": ["ü", "b"], "total": [2**60, None]})
    rows = encoded(batch, topic="t", format="json", key="user")
    assert [json.loads(r["value"]) for r in rows] == [
        {"user": "ü", "total": 2**60},
        {"user": "b", "total": None},
    ]
    assert [r["key"] for r in rows] == ["ü".encode(), b"b"]


def test_any_columns_as_avro() -> None:
    batch = pa.RecordBatch.from_pydict({"user": ["a"], "total": [1]})
    assert encoded(batch, topic="t", format="avro")[0]["value"]


@pytest.mark.parametrize(
    ("columns", "given", "sentence"),
    [
        ({"valu": ["x"]}, {"topic": "t"}, r"column 'valu' has no place .*did you mean 'value'"),
        ({"key": ["x"]}, {"topic": "t"}, "no column 'value'"),
        ({"value": [1]}, {"topic": "t"}, "column 'value' must be string or binary, not int64"),
        ({"value": ["x"]}, {}, r'where to\? give \.option\("topic"'),
        ({"value": ["x"], "topic": [1]}, {}, "column 'topic' must be string"),
        ({"value": ["x"], "partition": ["1"]}, {"topic": "t"}, "column 'partition' must be int"),
        ({"value": ["x"], "headers": ["1"]}, {"topic": "t"}, r"'headers' must be array<struct"),
        ({"user": ["x"]}, {"topic": "t", "format": "json", "key": "usr"}, "did you mean 'user'"),
        ({"n": [1]}, {"topic": "t", "format": "json", "key": "n"}, "a key is string or binary"),
        ({"user": ["x"]}, {"format": "json"}, r'need \.option\("topic"'),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, Any], given: dict[str, str], sentence: str) -> None:
    batch = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(GraphError, match=sentence):
        RowEncoder(options(**given), batch.schema)


def test_a_row_without_a_topic_or_a_header_without_a_key_is_named() -> None:
    with pytest.raises(EncodeError, match="'topic' is null in row 1"):
        encoded(pa.RecordBatch.from_pydict({"value": ["x", "y"], "topic": ["t", None]}))
    nameless = pa.array([[{"key": None, "value": b"x"}]], HEADERS)
    with pytest.raises(EncodeError, match="header without a key"):
        encoded(pa.RecordBatch.from_pydict({"value": pa.array(["x"]), "headers": nameless}), topic="t")


# --- Partitions ---------------------------------------------------------------------------------------


class Rows:
    """An Output."""

    checkpoint_id = 1

    def __init__(self, *batches: list[dict[str, Any]]) -> None:
        self._batches = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        for rows in self._batches:
            yield pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)


def row(key: bytes | None, partition: int = -1, topic: str = "t") -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "key": key, "value": b"v"}


def placed(output: Rows, **topics: int) -> list[list[tuple[str, int, bytes | None]]]:
    batches = PartitionedOutput(output, topics).batches()
    return [[(r["topic"], r["partition"], r["key"]) for r in batch.to_pylist()] for batch in batches]


def test_a_key_goes_where_javas_producers_send_it_and_rows_come_sorted() -> None:
    keys = [f"u{i}".encode() for i in range(50)]
    chosen = partition_of_key(pa.array(keys, pa.large_binary()), 5).tolist()
    (rows,) = placed(Rows([row(key) for key in keys]), t=5)
    assert {key: partition for _, partition, key in rows} == dict(zip(keys, chosen, strict=True))
    assert [partition for _, partition, _ in rows] == sorted(chosen)
    assert len(set(chosen)) == 5


def test_rows_without_a_key_go_batch_by_batch_to_one_partition_after_the_other() -> None:
    found = placed(Rows([row(None)] * 2, [row(None)], [row(None)]), t=2)
    assert [[partition for _, partition, _ in rows] for rows in found] == [[0, 0], [1], [0]]


def test_a_named_partition_is_kept_and_one_that_is_not_there_is_refused() -> None:
    assert placed(Rows([row(b"k", 1), row(b"k", 0)]), t=2)[0] == [("t", 0, b"k"), ("t", 1, b"k")]
    for wrong in (2, -2):
        with pytest.raises(Fatal, match=f"'partition' holds {wrong}, but topic 't' has partitions 0 to 1"):
            placed(Rows([row(b"k", wrong)]), t=2)


def test_rows_for_several_topics_each_by_its_own_partitions() -> None:
    rows = [row(b"a", topic="x"), row(b"a", topic="y"), row(b"b", topic="x")]
    (found,) = placed(Rows(rows), x=1, y=7)
    assert sorted(topic for topic, _, _ in found) == ["x", "x", "y"]
    assert {partition for topic, partition, _ in found if topic == "x"} == {0}


def test_a_topic_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match="topic 'b' does not exist"):
        must_exist({"a": object()}, {"a", "b"})
