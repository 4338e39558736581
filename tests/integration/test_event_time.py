"""Event time on a backlog, with idle partitions, and with records that are really late."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("host", "parallelism"),
    [("threads[2]", 2), ("threads[3]", 3)],
)
def test_a_backlog_read_at_unequal_pace_makes_nothing_late(
    host: str,
    parallelism: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """What peers fail at: one partition has most of the records, one has its last record hours ahead,
    one is empty, one starts an hour later, one is over almost at once."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 5), new_topic("out", 2)
    data = feed(servers, source, 5)
    reached_ms = data.load(120_000, START_MS, per_ms=5, partition=0)
    data.load(12_000, START_MS, per_ms=0.5, partition=1)
    data.send("u000001", 7, reached_ms + 5 * HOUR_MS, 1)
    data.load(20_000, START_MS + HOUR_MS, per_ms=1, partition=3)
    data.load(50, START_MS, per_ms=1, partition=4)
    data.flush()
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest")
    job = start_job(tmp_path / "ck", *arguments, "--window", "2 s", master=host, parallelism=parallelism)
    assert job.wait(240) == 0, job.story()
    assert job.named("job_finished")[0]["late_records"] == 0
    verdict = judge(servers).verdict(judge(servers).expected(source, window_ms=2_000), output)
    assert verdict.is_exact, verdict


@pytest.mark.parametrize("parallelism", [1, 2])
def test_idle_partitions_late_records_and_a_partition_that_comes_back(
    parallelism: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """Partition 3 is empty at first; results go on without it. It comes back with records behind the
    watermark: exactly those whose windows have fired are late, counted, and on the late topic."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 2)
    late = new_topic("late", 1)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--late", late)
    rows = follow(servers, output)
    data = feed(servers, source, 4)
    for partition in range(3):
        data.load(20_000, START_MS, per_ms=4, partition=partition)
        data.send("closing", 0, START_MS + HOUR_MS, partition)
    data.flush()  # all of it, before a partition that has nothing yet can be idle, too
    job = start_job(tmp_path / "ck", *arguments, "--idle-after", "500 ms", parallelism=parallelism)
    on_time = judge(servers).expected(source)
    rows.wait_rows(len(on_time), job)  # without the empty partition, or this would wait for ever
    for i in range(300):
        data.send(f"u{i:06d}", 1, START_MS + 1_000, 3)  # their windows have fired
        data.send(f"u{i:06d}", 1, START_MS + 2 * HOUR_MS, 3)  # these have not
    data.flush()
    job.wait_event("late_records", lambda e: e["late_records"] == 300)
    data.close(START_MS + 2 * HOUR_MS)
    later = [*on_time.iter_rows(), *((f"u{i:06d}", START_MS + 2 * HOUR_MS + 500, 1, 1) for i in range(300))]
    rows.wait_rows(len(later) + 1, job)  # and the closing records of before
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    assert job.named("job_finished")[0]["late_records"] == 300
    found = sorted(judge(servers).output(output).iter_rows())
    assert found == sorted(later)
    assert len(engine.read_topic(servers, late)) == 300
    watermarks = [e["watermark_ms"] for e in job.named("progress") if e["watermark_ms"] is not None]
    assert watermarks == sorted(watermarks)
