"""Jobs whose checkpoint folder is in a bucket: killed, cut off from it, and asked by every command."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ONCEFLOW
from tests.s3_server import S3Server, gateway

pytestmark = pytest.mark.kafka
OPTIONS = ("--slot-timeout", "10 s", "--restart", "fixed:200 ms:100")


@pytest.fixture(scope="module")
def forks() -> None:
    """New interpreters: their environment says where the bucket is."""


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 18))])
def test_killed_three_times_each_row_is_there_once(
    seed: int,
    server: S3Server,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
) -> None:
    """Driver and slots in one process, at any moment of a checkpoint. Seventeen seeds are 51 kills."""
    pick = random.Random(seed)
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4, seed), follow(servers, output)
    data.run(5_000)
    bucket = server.new_bucket()

    def start() -> Any:
        url, env = f"s3://{bucket}/totals", server.environment
        return start_job(url, *arguments, interval="100 ms", env=env, options=OPTIONS)

    for _ in range(3):
        job, since = start(), 0
        for _ in range(pick.randrange(1, 5)):
            since = job.events.index(job.wait_event("checkpoint_completed", after=since)) + 1
        rows.wait_some(pick.uniform(0, 0.15))
        job.kill_group()
        job.wait()
    job = start()
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(30) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    assert not server.uploads(bucket)
    attempts = {key.split("/")[3] for key in server.fs.find(f"{bucket}/totals/state")}
    assert len(attempts) <= 2, f"what earlier attempts had left was deleted: {attempts}"


@pytest.mark.skipif(gateway() is None, reason="moto forgets everything when it is ended")
@pytest.mark.parametrize("away_s", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_store_that_is_away_holds_up_checkpoints_and_nothing_else(
    away_s: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(5_000)
    with S3Server(gateway()) as server:
        url = f"s3://{server.new_bucket()}/totals"
        job = start_job(url, *arguments, interval="100 ms", env=server.environment, options=OPTIONS)
        job.wait_event("checkpoint_completed")
        answer = _command(server, "status", url, "--json")
        assert json.loads(answer)["job"] == "totals-under-test"
        assert url in _command(server, "list")
        server.stop()
        since = job.mark
        rows.wait_some(away_s)
        told = [e for e in job.events[since:] if e["event"] == "progress" and "is away" in str(e["waiting"])]
        told += [e for e in job.named("warning") if "is away" in e["reason"]]
        assert told, "nobody was told"
        server.start()
        since = job.mark
        job.wait_event("checkpoint_completed", after=since, timeout=120)
        assert not job.named("attempt_failed") or away_s > 30
        data.close()
        expected = judge(servers).expected(source)
        rows.wait_rows(len(expected), job)
        _command(server, "stop", url)
        assert job.wait(30) == 0, job.story()
        listed = json.loads(_command(server, "checkpoints", url, "--verify", "--json"))
        assert [each["status"] for each in listed] == ["completed"] * 3, listed
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def test_a_bucket_that_is_not_there_is_one_sentence(
    server: S3Server, start_job: Any, broker: Any, new_topic: Any
) -> None:
    arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--input", new_topic("in", 1))
    job = start_job("s3://nobodys-bucket/x", *arguments, "--output", "out", env=server.environment)
    assert job.wait(60) == 1
    assert "can't write s3://nobodys-bucket/x" in job.errors()
    assert "Traceback" not in job.errors()


def _command(server: S3Server, *arguments: str) -> str:
    command = [*ONCEFLOW, *arguments]
    environment = {**os.environ, **server.environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
