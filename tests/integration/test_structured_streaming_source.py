"""The source on a real Spark and a real Kafka: one session and one broker for all tests here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

import onceflow
from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

MakeTopic = Callable[..., str]


class Reading:
    """A query over one topic that may be run again and again from its checkpoint; `rows` are what its
    batches brought, each under its number."""

    def __init__(self, spark: Any, servers: str, folder: Path, **options: str) -> None:
        self.spark = spark
        self.checkpoint = folder / uuid.uuid4().hex
        self.options = {"bootstrap_servers": servers, "startingOffsets": "earliest", **options}
        self.schema = "value STRING, partition INT, offset BIGINT"
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.runs: dict[int, int] = {}

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    def run(self) -> None:
        """Run until everything that is there now has been read."""
        query = self._start({"availableNow": True})
        query.awaitTermination()

    def start(self) -> Any:
        """A query that goes on."""
        return self._start({"processingTime": "0 seconds"})

    def forget_commit(self, number: int) -> None:
        """The state of a driver that died after the batch was done and before Spark wrote that."""
        for name in (str(number), f".{number}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def written(self, number: int) -> dict[str, Any]:
        """The source's offsets in Spark's log."""
        return dict(json.loads((self.checkpoint / "offsets" / str(number)).read_text().splitlines()[2]))

    def _start(self, trigger: dict[str, Any]) -> Any:
        reader = self.spark.readStream.format("onceflow-kafka").schema(self.schema)
        for name, value in self.options.items():
            reader = reader.option(name, value)
        writer = reader.load().writeStream.foreachBatch(self._take).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def _take(self, frame: Any, number: int) -> None:
        self.batches[number] = sorted(tuple(row) for row in frame.collect())
        self.runs[number] = self.runs.get(number, 0) + 1


@pytest.fixture
def reading(spark: Any, broker: EmbeddedKafka, tmp_path: Path) -> Callable[..., Reading]:
    return lambda **options: Reading(spark, broker.bootstrap_servers, tmp_path, **options)


def produce(kafka: EmbeddedKafka, topic: str, *values: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def load(spark: Any, kafka: EmbeddedKafka, **options: str) -> Any:
    reader = spark.read.format("onceflow-kafka").option("bootstrap_servers", kafka.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader


def test_a_batch_reads_all_that_is_there_and_no_more_than_it_is_told(
    spark: Any, broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("batch", partitions=2)
    produce(broker, topic, *(f"a{i}" for i in range(20)))
    produce(broker, topic, *(f"b{i}" for i in range(10)), partition=1)
    frame = load(spark, broker, subscribe=topic, minPartitions="6").load()
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert frame.rdd.getNumPartitions() == 6
    rows = frame.selectExpr("CAST(value AS STRING)", "partition", "offset").collect()
    assert sorted(map(tuple, rows)) == sorted(
        [(f"a{i}", 0, i) for i in range(20)] + [(f"b{i}", 1, i) for i in range(10)]
    )
    ends = json.dumps({topic: {"0": 7, "1": -1}})
    assert load(spark, broker, subscribe=topic, endingOffsets=ends).load().count() == 17
    assert load(spark, broker, assign=json.dumps({topic: [1]})).load().count() == 10
    assert load(spark, broker, subscribe=new_topic("empty")).load().count() == 0


def test_typed_columns_are_decoded_in_the_tasks(
    spark: Any, broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("typed")
    produce(broker, topic, '{"user":"a","tags":["x",null],"at":"2026-01-02T03:04:05Z"}', '{"user":"b"}')
    schema = "user STRING, at TIMESTAMP, tags ARRAY<STRING>, place BIGINT, seen TIMESTAMP"
    options = {"format": "json", "offset_column": "place", "timestamp_column": "seen", "topics": topic}
    frame = load(spark, broker, **options).schema(schema).load()
    rows = frame.selectExpr("user", "unix_seconds(at)", "tags", "place", "seen IS NOT NULL").collect()
    assert sorted(map(tuple, rows)) == [
        ("a", 1767323045, ["x", None], 0, True), ("b", None, None, 1, True),
    ]  # fmt: skip


def test_a_limit_makes_batches_and_a_second_run_reads_only_what_is_new(
    reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("limit", partitions=2)
    produce(broker, topic, *(f"a{i}" for i in range(30)))
    produce(broker, topic, *(f"b{i}" for i in range(10)), partition=1)
    it = reading(subscribe=topic, maxOffsetsPerTrigger="20")
    it.run()
    assert [len(it.batches[number]) for number in sorted(it.batches)] == [20, 20]
    assert len(set(it.rows)) == 40
    produce(broker, topic, "new")
    it.run()
    assert it.batches[2] == [("new", 0, 30)]
    assert it.written(2)[topic] == {"0": 31, "1": 10}


def test_a_batch_that_spark_has_not_written_off_is_read_again_the_same(
    reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("again")
    produce(broker, topic, *(f"a{i}" for i in range(10)))
    it = reading(subscribe=topic, maxOffsetsPerTrigger="4")
    it.run()
    first = dict(it.batches)
    it.forget_commit(2)
    produce(broker, topic, "later")
    it.run()
    assert it.runs == {0: 1, 1: 1, 2: 2, 3: 1}
    assert {number: it.batches[number] for number in first} == first
    assert it.batches[3] == [("later", 0, 10)]


def test_a_query_that_begins_at_the_end_loses_nothing_if_it_dies_before_its_first_records(
    reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("latest")
    produce(broker, topic, "before")
    it = reading(subscribe=topic, startingOffsets="latest")
    it.run()
    it.forget_commit(0)
    produce(broker, topic, "after 1", "after 2")
    it.run()
    assert [value for value, *_ in it.rows] == ["after 1", "after 2"]


def test_partitions_that_are_added_are_read_from_their_beginning(
    reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("grows")
    produce(broker, topic, "a")
    it = reading(subscribe=topic)
    query = it.start()
    query.processAllAvailable()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    produce(broker, topic, "b", "c", partition=1)
    while len(it.rows) < 3:  # the test's own timeout ends it
        query.processAllAvailable()
        assert query.exception() is None
    query.stop()
    assert sorted(it.rows) == [("a", 0, 0), ("b", 1, 0), ("c", 1, 1)]


def test_a_checkpoint_of_sparks_own_source_goes_on(
    reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("moves")
    produce(broker, topic, "a", "b")
    it = reading(subscribe=topic)
    it.run()
    log = it.checkpoint / "offsets" / "0"
    lines = log.read_text().splitlines()
    lines[2] = json.dumps({topic: {"0": 1}})  # as spark-sql-kafka writes it
    log.write_text("\n".join(lines))
    (log.parent / ".0.crc").unlink(missing_ok=True)
    it.run()
    assert it.batches[1] == [("b", 0, 1)]


def said(query: Callable[[], Any]) -> str:
    """The error's text, in which our own sentence stands."""
    with pytest.raises(Exception, match="onceflow") as error:
        query()
    return str(error.value)


def sentence(query: Callable[[], Any]) -> str:
    """Our own sentence alone."""
    with pytest.raises(Exception, match="onceflow") as error:
        query()
    found = onceflow.why_failed(error.value)
    assert found is not None, str(error.value)
    return found


def test_mistakes_are_told_in_a_sentence(
    spark: Any, reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("mistakes")
    produce(broker, topic, "no json")
    wrong = reading(subscribe=topic, startingOffset="earliest")
    assert "UnboundLocalError" not in said(wrong.run), "Spark's own, when it has no reader to stop"
    assert sentence(wrong.run) == (
        "onceflow-kafka has no option 'startingoffset' for spark.readStream (did you mean 'startingOffsets'?)"
    )
    missing = reading(subscribe=topic[:-1])
    assert sentence(missing.run) == (
        f"topic '{topic[:-1]}' does not exist (did you mean '{topic}'?): create it or correct the name"
    )
    away = reading(subscribe=topic, bootstrap_servers="127.0.0.1:1", broker_timeout="1 s")
    assert sentence(away.run).startswith("can't ")
    assert sentence(away.run).endswith("with the same checkpoint when it can be used")
    typed = load(spark, broker, subscribe=topic, format="json").schema("user STRING").load()
    bad = sentence(typed.collect)
    assert bad.startswith(f"the value of the record in {topic}-0 at offset 0 can't be decoded")
    assert '.option("mode", "permissive")' in bad
    untyped = load(spark, broker, subscribe=topic, format="json").load
    assert sentence(untyped).startswith("option format='json' needs the columns: .schema(")


def test_a_mistake_that_nobody_catches_ends_a_program_with_one_sentence(tmp_path: Path) -> None:
    """The program is run by the Python that has onceflow, where Spark itself finds another one."""
    (tmp_path / "python3").write_text('#!/bin/sh\necho "a Python without onceflow" >&2\nexit 1\n')
    (tmp_path / "python3").chmod(0o755)
    program = tmp_path / "program.py"
    program.write_text(
        "import onceflow\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "onceflow.register(spark)\n"
        "spark.read.format('onceflow-kafka').option('subscrib', 'x').load().collect()\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, timeout=480
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("onceflow: ")]
    assert told == [
        f"onceflow: {program}:5: onceflow-kafka has no option 'subscrib' for spark.read (did you mean "
        "'subscribe'?)"
    ], done.stderr


def test_a_topic_made_anew_is_told_and_not_read(
    reading: Callable[..., Reading], broker: EmbeddedKafka, new_topic: MakeTopic
) -> None:
    topic = new_topic("anew")
    produce(broker, topic, "a")
    it = reading(subscribe=topic)
    it.run()
    log = it.checkpoint / "offsets" / "0"
    log.write_text(log.read_text().replace(it.written(0)["#topic_ids"][topic], "AAAAAAAAAAAAAAAAAAAAAA"))
    (log.parent / ".0.crc").unlink(missing_ok=True)
    assert f"topic '{topic}' has been deleted and made anew" in said(it.run)
    it.options["failOnDataLoss"] = "false"
    it.run()
    assert it.rows[-1] == ("a", 0, 0)
    assert len(it.rows) == 2
