"""The weaker guarantees keep what they promise; frequent checkpoints and large epochs are carried."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


def test_at_least_once_loses_nothing(
    start_job: Any, feed: Any, judge: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """The whole process is killed twice; every window comes, with at least its count."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    options = ["--guarantee", "at-least-once"]
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(5_000)
    for _ in range(2):
        job = start_job(tmp_path / "ck", *arguments, options=options)
        done = job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
        job.wait_event("checkpoint_completed", after=job.events.index(done) + 1)
        job.kill_group()
        job.wait()
    job = start_job(tmp_path / "ck", *arguments, options=options)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    found = judge(servers).output(output).rename({"count": "found"})
    joined = expected.join(found, on=["user", "window_end"], how="left")
    assert joined["found"].null_count() == 0
    assert (joined["found"] >= joined["count"]).all()


def test_at_most_once_doubles_nothing_and_goes_on_at_the_end(
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """What was written while the job was away is left out; nothing counts more than once."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    options = ["--guarantee", "at-most-once"]
    data = feed(servers, source, 2)
    reached_ms = data.load(20_000, START_MS)
    job = start_job(tmp_path / "ck", *arguments, options=options)
    job.wait_event("progress", lambda e: e["records_in"] == 20_000)
    job.wait_event("checkpoint_completed", after=job.mark)
    job.kill_group()
    job.wait()
    away_ms = reached_ms + 10_000
    reached_ms = data.load(10_000, away_ms)
    again = start_job(tmp_path / "ck", *arguments, options=options)
    again.wait_event("slots_started")
    again.wait_event("checkpoint_completed")
    rows = follow(servers, output)
    data.load(20_000, reached_ms + 10_000)
    data.close(reached_ms + 20_000)
    every = judge(servers).expected(source)
    kept = [r for r in every.iter_rows() if not away_ms - 500 < r[1] <= reached_ms + 500]
    rows.wait_rows(len(kept), again)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    assert sorted(judge(servers).output(output).iter_rows()) == sorted(kept)


def test_an_epoch_beyond_the_memory_limit_goes_out_whole(
    start_job: Any, feed: Any, judge: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """One checkpoint, the last, has all output: about 200 MB; the sink keeps 128 MB in memory."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    data = feed(servers, source, 2)
    filler = "x" * 700
    for i in range(120_000):
        data.send(f"{i:07d}{filler}", i, START_MS, i % 2)
    data.flush()
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest")
    job = start_job(tmp_path / "ck", *arguments, interval="1 h")
    assert job.wait(360) == 0, job.story()
    last = engine.manifests(tmp_path / "ck")[-1]
    staged = [o for c in last["committables"] for o in c["payload"]["outputs"]]
    assert max(o["bytes"] for o in staged) > 64 << 20, staged
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict
    assert verdict.rows == 120_000


@pytest.mark.slow
def test_checkpoints_every_100_ms_are_carried(
    start_job: Any, feed: Any, judge: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    job = start_job(tmp_path / "ck", *arguments, interval="100 ms")
    data.run(3_000)
    first = job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    last = job.wait_event(
        "checkpoint_completed", lambda e: e["checkpoint_id"] >= first["checkpoint_id"] + 100
    )
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    rate = 100_000 / (last["ts_ms"] - first["ts_ms"])
    slowest = sorted(e["duration_ms"] for e in job.named("checkpoint_completed"))
    print(f"{rate:.1f} checkpoints/s, {slowest[len(slowest) // 2]} ms median, {slowest[-1]} ms at most")
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    assert not job.named("checkpoint_failed")


def test_partitions_and_topics_that_appear_are_read(
    start_job: Any, feed: Any, judge: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """A pattern; then a partition more, and a topic more; restored with them after a kill, and with a topic
    that appeared while the job was down."""
    servers, name, output = broker.bootstrap_servers, new_topic("grow", 2), new_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--pattern", f"{name}.*", "--output", output)
    arguments += ("--discovery", "300 ms", "--idle-after", "1 s")
    rows = follow(servers, output)
    job = start_job(tmp_path / "ck", *arguments)
    reached_ms = feed(servers, name, 2).load(10_000, START_MS)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_partitions([NewPartitions(name, 3)])[name].result(20)
    other = broker.create_topic(f"{name}-other", 1)
    found = [
        job.wait_event("splits_discovered", lambda e, s=s: s in e["splits"])
        for s in (f"{name}-2", f"{other}-0")
    ]
    job.wait_event("checkpoint_completed", after=max(map(job.events.index, found)))
    job.kill_group()
    job.wait()
    # All of it before the job reads: what comes to a partition that has been idle for a second may be late.
    meanwhile = broker.create_topic(f"{name}-meanwhile", 1)
    data, *more = feed(servers, name, 3), feed(servers, other, 1), feed(servers, meanwhile, 1)
    later_ms = reached_ms + 5_000
    end_ms = max(data.load(15_000, later_ms, per_ms=3), *(f.load(5_000, later_ms, per_ms=1) for f in more))
    for one in (data, *more):
        one.close(end_ms)
    again = start_job(tmp_path / "ck", *arguments)
    expected = judge(servers).expected(name, other, meanwhile)
    rows.wait_rows(len(expected), again)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    assert again.named("job_finished")[0]["late_records"] == 0
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def test_a_job_that_runs_itself(
    feed: Any, judge: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """`python script.py` with job.run() in it."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    data = feed(servers, source, 2)
    data.close(data.load(20_000, START_MS))
    arguments = ["--bootstrap-servers", servers, "--input", source, "--output", output, "--until", "latest"]
    script = tmp_path / "totals_script.py"
    script.write_text(
        (engine.jobs / "totals.py").read_text()
        + f'\n\nif __name__ == "__main__":\n    result = build({arguments!r}).run({str(tmp_path / "ck")!r}, '
        'master="threads[2]", checkpoint_interval="200 ms")\n    print(result.outcome.value)\n'
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict
