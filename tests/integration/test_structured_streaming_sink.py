"""`onceflow-kafka` as a sink on real Spark and Kafka: what it writes, refuses, and does not write twice."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

import onceflow
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.produce.partitioner import partition_of_key

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

MakeTopic = Callable[..., str]


def dump(servers: str, topic: str) -> list[Message]:
    """What a read_committed reader sees, up to the end of each partition."""
    settings = {
        "bootstrap.servers": servers,
        "log_level": 0,
        "group.id": uuid.uuid4().hex,
        "enable.partition.eof": True,
    }
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})
    partitions = consumer.list_topics(topic, timeout=240).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(30)
        assert message is not None, f"the dump of {topic} does not end"
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
    consumer.close()
    return found


class Query:
    """A query over JSON files, one a batch, that may be run again and again from its checkpoint."""

    def __init__(self, spark: Any, servers: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.servers = servers
        self.topic = topic
        self.files = 0
        self.checkpoint = folder / "checkpoint"
        self.options = {
            "bootstrap_servers": servers,
            "topic": topic,
            "uid": f"u-{topic}",
            "format": "json",
            "checkpointLocation": str(self.checkpoint),
        }
        (folder / "input").mkdir()

    def add(self, *rows: dict[str, Any]) -> None:
        temporary = self.folder / "file"
        temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
        temporary.rename(self.folder / "input" / f"{self.files:05}.json")
        self.files += 1

    def run(
        self,
        shape: Callable[[Any], Any] = lambda rows: rows,
        mode: str = "append",
        **options: str | None,
    ) -> None:
        """Run until the input is used up. An option that is None is left out."""
        rows = self.spark.readStream.schema("id long, user string").option("maxFilesPerTrigger", 1)
        given = {name: value for name, value in {**self.options, **options}.items() if value is not None}
        writing = shape(rows.json(str(self.folder / "input"))).writeStream.outputMode(mode)
        query = writing.format("onceflow-kafka").options(**given).trigger(availableNow=True).start()
        assert query.awaitTermination(200), "the query does not end"

    def seen(self) -> list[dict[str, Any]]:
        return [json.loads(message.value()) for message in dump(self.servers, self.topic)]

    def refused(self, sentence: str, **options: str | None) -> None:
        """A run fails, of which we say this sentence, and nothing new is visible."""
        before = len(self.seen()) if options.get("topic") is None else 0
        with pytest.raises(Exception, match="onceflow") as error:
            self.run(**options)
        assert re.search(sentence, str(onceflow.why_failed(error.value))), str(error.value)
        assert len(self.seen()) == before


@pytest.fixture
def query(spark: Any, broker: EmbeddedKafka, new_topic: MakeTopic, tmp_path: Path) -> Query:
    return Query(spark, broker.bootstrap_servers, new_topic("out", partitions=3), tmp_path)


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


# --- What is written ----------------------------------------------------------------------------------


def test_rows_as_json_each_once_over_several_runs(query: Query) -> None:
    for start in (0, 10):
        query.add(*({"id": start + i, "user": f"u{i}"} for i in range(10)))
        query.run(key="user")
        query.run(key="user")
    messages = dump(query.servers, query.topic)
    assert sorted(json.loads(m.value())["id"] for m in messages) == list(range(20))
    for message in messages:
        key = pa.array([message.key()], pa.large_binary())
        assert message.key() == json.loads(message.value())["user"].encode()
        assert message.partition() == partition_of_key(key, 3)[0]
    left = [p.name for p in (query.checkpoint / "onceflow").rglob("*") if p.is_file()]
    assert sorted(left) == ["driver.json", "sent-1", "sink.json"], "finished batches are swept"


def test_columns_as_sparks_own_sink_names_them(query: Query, new_topic: MakeTopic) -> None:
    other = new_topic("other")
    query.add({"id": 1, "user": query.topic}, {"id": 2, "user": other})

    def shape(rows: Any) -> Any:
        return rows.selectExpr(
            "cast(id as string) as key",
            "cast(concat('v', id) as binary) as value",
            "user as topic",
            "array(struct('h' as key, cast('x' as binary) as value)) as headers",
            "cast(if(id = 1, 2, null) as int) as partition",
        )

    query.run(shape, format=None, topic=None)
    (first,), (second,) = dump(query.servers, query.topic), dump(query.servers, other)
    assert (first.key(), first.value(), first.partition()) == (b"1", b"v1", 2)
    assert first.headers() == [("h", b"x")]
    assert (second.key(), second.value()) == (b"2", b"v2")


def test_complete_mode_appends_each_whole_result_and_empty_batches_pass(query: Query) -> None:
    query.add({"id": 1, "user": "a"}, {"id": 2, "user": "a"})
    query.run(lambda rows: rows.groupBy("user").count(), mode="complete")
    assert query.seen() == [{"user": "a", "count": 2}]
    query.add({"id": 3, "user": "a"})
    query.run(lambda rows: rows.groupBy("user").count(), mode="complete")
    assert sorted(row["count"] for row in query.seen()) == [2, 3]


def test_a_batch_without_rows_writes_nothing(query: Query) -> None:
    query.add({"id": 1, "user": "a"})
    query.run(lambda rows: rows.where("id > 1"))
    query.add({"id": 2, "user": "a"})
    query.run(lambda rows: rows.where("id > 1"))
    assert ids(query.seen()) == [2]


# --- What is run again --------------------------------------------------------------------------------


def forget_last_commit(checkpoint: Path) -> None:
    """Make it as if the driver had died after our commit and before Spark's own."""
    last = max((p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink()


def test_a_batch_that_is_run_again_with_other_rows_shows_one_attempt_only(query: Query) -> None:
    for batch in range(2):
        query.add({"id": batch, "user": "a"})
        query.run(lambda rows: rows.selectExpr("id", "'first' as attempt"))
        forget_last_commit(query.checkpoint)
        query.run(lambda rows: rows.selectExpr("explode(array(id, id + 100)) as id", "'second' as attempt"))
    assert sorted((row["id"], row["attempt"]) for row in query.seen()) == [(0, "first"), (1, "first")]


def test_an_older_copy_of_the_checkpoint_is_refused(query: Query) -> None:
    query.add({"id": 0, "user": "a"})
    query.run()
    copy = query.folder / "copy"
    shutil.copytree(query.checkpoint, copy)
    for number in (1, 2):
        query.add({"id": number, "user": "a"})
    query.run()
    query.refused("written up to batch 2, but this query is at batch 1", checkpointLocation=str(copy))
    assert ids(query.seen()) == [0, 1, 2]


# --- What is refused ----------------------------------------------------------------------------------


def test_a_checkpoint_and_a_uid_belong_to_each_other(query: Query) -> None:
    query.add({"id": 0, "user": "a"})
    query.run()
    query.add({"id": 1, "user": "a"})
    query.refused("was used with uid .*not 'another'", uid="another")
    query.refused("belongs to query .* give a new uid", checkpointLocation=str(query.folder / "new"))
    shutil.rmtree(query.checkpoint)
    query.refused("or its checkpoint was deleted")
    assert ids(query.seen()) == [0]


def test_what_is_wrong_is_said_before_anything_is_written(query: Query) -> None:
    query.add({"id": 0, "user": "a"})
    query.refused("topic 'not-there' does not exist", topic="not-there")
    query.refused("no option 'topik' for writeStream .did you mean 'topic'", topik="x")
    query.refused("has no place in a Kafka record", format=None)
    query.refused("column that the rows don't have .did you mean 'user'", key="usr")
    query.refused(
        "Connect to ipv4#127.0.0.1:1 failed",
        bootstrap_servers="127.0.0.1:1",
        topic="x",
        delivery_timeout="1 s",
    )
    query.refused("would make a batch visible in parts", max_rows_per_transaction="5")
    query.refused("staging folder .* is not shared", staging="memory://of-one-process")
    with pytest.raises(Exception, match="does not support Update mode"):
        query.run(lambda rows: rows.groupBy("user").count(), mode="update")
    query.run()
    assert ids(query.seen()) == [0]


# --- A batch ------------------------------------------------------------------------------------------


def write(rows: Any, query: Query, mode: str = "append", **options: str) -> None:
    given = {"bootstrap_servers": query.servers, "topic": query.topic, "format": "json", **options}
    rows.write.format("onceflow-kafka").options(staging=str(query.folder / "st"), **given).mode(mode).save()


def test_a_batch_is_written_whole_or_not_at_all(query: Query) -> None:
    rows = query.spark.range(0, 1_000, 1, 4)
    with pytest.raises(Exception, match="too big"):
        write(rows.selectExpr("if(id = 999, raise_error('too big'), id) as id"), query)
    assert query.seen() == []
    write(rows, query)
    assert ids(query.seen()) == list(range(1_000))
    # The other tasks of the failed one may still run: the last of them deletes what it has made.
    deadline = time.monotonic() + 240
    while left := list((query.folder / "st").iterdir()):
        assert time.monotonic() < deadline, f"staged files are left: {left}"
        threading.Event().wait(0.05)


def test_a_uid_names_one_write(query: Query) -> None:
    rows = query.spark.range(10)
    write(rows, query, uid=query.topic)
    with pytest.raises(Exception, match="is written already"):
        write(rows, query, uid=query.topic)
    with pytest.raises(Exception, match="can't be overwritten"):
        write(rows, query, mode="overwrite")
    assert ids(query.seen()) == list(range(10))
