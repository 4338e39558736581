"""A job goes back although later output is in Kafka: what is written again is said, marked, and all that is
there twice. A kill in between changes nothing."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from onceflow.connectors.kafka.produce.marked_records import HEADER

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


class Row(NamedTuple):
    place: tuple[int, int]
    """Partition and offset."""
    result: tuple[str, int]
    """User and window end: each is written once by a job that does not go back."""
    mark: bytes | None


def visible(servers: str, topic: str, partitions: int) -> list[Row]:
    """What a read_committed consumer sees up to the end of now."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "going-back", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    rows, ended = [], set()
    while len(ended) < partitions:
        message = consumer.poll(60)
        assert message is not None, "the broker answers within a minute"
        if message.error():
            ended.add(message.partition())
            continue
        value = json.loads(message.value())
        marks = [v for k, v in message.headers() or () if k == HEADER]
        assert len(marks) <= 1
        place = message.partition(), message.offset()
        rows.append(Row(place, (value["user"], value["window_end"]), marks[0] if marks else None))
    consumer.close()
    return rows


def test_later_output_is_written_again_where_the_user_accepts_it(
    start_job: Any, feed: Any, engine: Any, judge: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    folder = tmp_path / "ck"
    data = feed(servers, source, 2)
    job = start_job(folder, *arguments, options=["--retained", "50"])
    reached_ms = START_MS
    for _ in range(3):
        since = job.mark
        reached_ms = data.load(10_000, reached_ms)
        for _ in range(3):
            done = job.wait_event("checkpoint_completed", after=since)
            since = job.events.index(done) + 1
    job.kill_group()
    job.wait()
    promised = [m["checkpoint_id"] for m in engine.manifests(folder) if engine.promised(m)]
    to, past = promised[len(promised) // 3], engine.manifests(folder)[-1]["checkpoint_id"]
    before = visible(servers, output, 2)

    refused = start_job(folder, *arguments, options=["--from", str(to)])
    assert refused.wait(120) == 1, refused.story()
    assert f"--accept-duplicates-after {to}" in refused.errors(), refused.errors()
    assert len(visible(servers, output, 2)) == len(before)

    command = ["--retained", "50", "--from", str(to), "--accept-duplicates-after", str(to)]
    back = start_job(folder, *arguments, options=command)
    told = back.wait_event("went_back")
    assert (told["to"], told["past"], told["checkpoint_id"]) == (to, past, past + 1)
    for _ in range(2):
        back.wait_event("checkpoint_completed", after=back.mark)
    back.kill_group()
    back.wait()

    again = start_job(folder, *arguments, options=command)
    again.wait_event("attempt_started")
    data.close(reached_ms)
    expected = judge(servers).expected(source)
    wanted = set(zip(expected["user"], expected["window_end"], strict=True))
    while not wanted <= {row.result for row in visible(servers, output, 2) if row.mark or row in before}:
        again.wait_event("checkpoint_completed", after=again.mark)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    assert not again.named("went_back"), "the same command goes on"

    rows = [row for row in visible(servers, output, 2) if row.result in wanted]
    old = [row for row in rows if row.mark is None]
    new = [row for row in rows if row.mark is not None]
    assert {row.place for row in old} <= {row.place for row in before}, "what is written now is marked"
    assert {row.mark for row in new} == {str(to).encode()}
    assert max(Counter(row.result for row in new).values()) == 1, "and is written once"
    spans = {(s["partition"]): (s["begin"], s["end"]) for s in told["doubled"]["output"]}
    doubled = {row.result for row in new} & {row.result for row in old}
    assert doubled, "there was later output"
    for row in old:
        begin, end = spans.get(row.place[0], (0, 0))
        assert row.result not in doubled or begin <= row.place[1] < end, (row, spans)
    assert {row.result for row in rows} == wanted
