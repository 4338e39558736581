"""Records that can't be decoded, large ones, and dead letters through to their topic."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json, Raw, Text
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, DeadLetterSource, SinkContext
from onceflow.runtime.errors import BadRecordError, GraphError
from onceflow.runtime.records import Records

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("all_ways_and_the_judge")]

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@dataclass
class Folder:
    """The checkpoint's folder, as the engine gives it to a sink writer."""

    path: Path

    def create(self, name: str) -> tuple[str, BinaryIO]:
        return name, (self.path / name).open("xb")

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO((self.path / path).read_bytes())


def source(cluster: Any, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=cluster.servers, topics=topic, **{"value": Json(SCHEMA), **options})


def tolerant(cluster: Any, topic: str, dead: str, **options: Any) -> KafkaSource:
    errors = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead}
    return source(cluster, topic, errors=errors, **options)


def test_a_bad_record_stops_the_job_and_is_named(cluster: Any, new_topic: Any, reading: Any) -> None:
    topic = new_topic("bad", partitions=2)
    cluster.produce(topic, b'{"n":1}', b'{"n":1.5}\xff' + b"x" * 1000, b'{"n":3}', partition=1)
    read = reading(source(cluster, topic))
    with pytest.raises(BadRecordError) as raised:
        read.to_the_end()
    text = str(raised.value)
    assert f"{topic}-1 at offset 1" in text
    assert "Expected `int`, got `float`" in text
    assert repr(b'{"n":1.5}\xff' + b"x" * 90) in text
    assert "x" * 91 not in text
    assert 'errors_tolerance="all"' in text
    assert read.rows == []
    assert read.positions()[f"{topic}-1"] == 0  # nothing of that poll counts as read


def test_bad_records_become_dead_letters_and_the_others_keep_their_places(
    cluster: Any, new_topic: Any, reading: Any
) -> None:
    topic = new_topic("some-bad")
    for i in range(30):
        value = None if i % 10 == 3 else b"{" if i % 10 == 7 else b'{"n":%d}' % i
        cluster.produce(topic, value, key=b"\xff" if i % 10 == 5 else b"k", headers=[("h", b"%d" % i)])
    read = reading(tolerant(cluster, topic, "unused", key=Text("key"))).to_the_end()
    good = [i for i in range(30) if i % 10 not in (3, 5, 7)]
    assert [(offset, row["n"]) for _, offset, row in read.rows] == [(i, i) for i in good]
    bad = [i for i in range(30) if i not in good]
    assert [letter["offset"] for letter in read.dead_letters] == bad
    assert [letter["stage"] for letter in read.dead_letters] == ["value", "key", "value"] * 3
    letter = read.dead_letters[1]
    assert letter["key"] == b"\xff"
    assert letter["value"] == b'{"n":5}'
    assert letter["headers"] == [{"key": "h", "value": b"5"}]
    assert (letter["topic"], letter["partition"]) == (topic, 0)
    assert "UTF-8" in letter["reason"]
    assert read.positions() == {f"{topic}-0": 30}


def test_a_record_of_megabytes_is_read_among_small_ones(cluster: Any, new_topic: Any, reading: Any) -> None:
    topic = new_topic("large", config={"max.message.bytes": "9000000"})
    sizes = [10, 1 << 20, 8_500_000, 10, 1 << 20]
    cluster.produce(topic, *(b"x" * size for size in sizes))
    read = reading(source(cluster, topic, value=Raw())).to_the_end()
    assert [len(row["value"]) for _, _, row in read.rows] == sizes


def test_dead_letters_reach_their_topic_exactly_once(
    cluster: Any, new_topic: Any, reading: Any, tmp_path: Path
) -> None:
    """Staged at a barrier, invisible; committed twice by a second attempt, there once, with its reasons."""
    topic, dead = new_topic("input"), new_topic("dead")
    cluster.produce(topic, b"bad\x00", key=b"\x01", headers=[("mine", b"kept"), ("empty", None)])
    described = tolerant(cluster, topic, dead)
    assert isinstance(described, DeadLetterSource)
    sink = described.dead_letter_sink()
    assert sink is not None
    sink.check(DEAD_LETTER_SCHEMA, "uid")
    with pytest.raises(GraphError, match="dead letters only"):
        sink.check(SCHEMA, "uid")

    read = reading(described)
    fetch = None
    while fetch is None or fetch.dead_letters is None:
        fetch = read.reader.poll(100, 1_000)
    writer = sink.open_writer(_context(topic, tmp_path, attempt=1))
    writer.recover([])
    writer.write(Records(fetch.dead_letters))
    committable = writer.pre_commit(1).stage()
    seen = reading(source(cluster, dead, value=Raw(), key=Raw("key"), headers="headers")).to_the_end()
    assert seen.rows == []
    writer.close()  # a crash after the checkpoint became durable, before the commit

    for attempt in (2, 3):
        again = sink.open_writer(_context(topic, tmp_path, attempt=attempt, restored=1))
        again.recover([committable])
        again.close()
    seen.until(lambda: bool(seen.rows)).to_the_end()
    ((_, _, row),) = seen.rows
    assert (row["key"], row["value"]) == (b"\x01", b"bad\x00")
    headers: Mapping[str, bytes | None] = {h["key"]: h["value"] for h in row["headers"]}
    assert headers["mine"] == b"kept"
    assert headers["empty"] is None
    assert headers["__connect.errors.topic"] == topic.encode()
    assert headers["__connect.errors.partition"] == b"0"
    assert headers["__connect.errors.offset"] == b"0"
    assert headers["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert b"malformed" in (headers["__connect.errors.exception.message"] or b"")


def _context(topic: str, folder: Path, attempt: int, restored: int = 0) -> SinkContext:
    return SinkContext(
        job="job",
        lineage=topic.split("-")[-1],
        uid="dead",
        subtask=0,
        parallelism=1,
        attempt=attempt,
        restored_checkpoint_id=restored,
        files=Folder(folder),
        clock=SystemClock(),
        schema=DEAD_LETTER_SCHEMA,
    )
