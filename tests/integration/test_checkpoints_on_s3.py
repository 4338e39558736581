"""Jobs whose checkpoint folder is in a bucket: killed, cut off from it, and asked by every command."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.forks import Forks
from tests.s3_server import S3Server, gateway

pytestmark = pytest.mark.kafka
OPTIONS = ("--slot-timeout", "10 s", "--restart", "fixed:200 ms:100")


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


@pytest.fixture(scope="module")
def forks(server: S3Server) -> Iterator[Forks]:
    """Processes whose environment says where the bucket is."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        forks = Forks()
        yield forks
        forks.close()


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
    data.run(2_000)
    bucket = server.new_bucket()

    def start() -> Any:
        return start_job(f"s3://{bucket}/totals", *arguments, interval="100 ms", options=OPTIONS)

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
    assert job.wait(120) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    assert not server.uploads(bucket)
    attempts = {key.split("/")[3] for key in server.fs.find(f"{bucket}/totals/state")}
    assert len(attempts) <= 2, f"what earlier attempts had left was deleted: {attempts}"


@pytest.mark.skipif(gateway() is None, reason="moto forgets everything when it is ended")
@pytest.mark.parametrize("away_s", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_store_that_is_away_holds_up_checkpoints_and_nothing_else(
    away_s: int,
    server: S3Server,
    onceflow: Any,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(2_000)
    url = f"s3://{server.new_bucket()}/totals"
    job = start_job(url, *arguments, interval="100 ms", options=OPTIONS)
    job.wait_event("checkpoint_completed")
    assert json.loads(onceflow("status", url, "--json").stdout)["job"] == "totals-under-test"
    assert url in onceflow("list").stdout
    server.stop()
    since = job.mark
    rows.wait_some(away_s)
    engine.wait_for(lambda: any(_says_it_is_away(event) for event in job.events[since:]), job)
    server.start()
    job.wait_event("checkpoint_completed", after=job.mark, timeout=480)
    assert away_s > 30 or not job.named("attempt_failed"), job.story()
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    assert onceflow("stop", url).returncode == 0
    assert job.wait(120) == 0, job.story()
    listed = json.loads(onceflow("checkpoints", url, "--verify", "--json").stdout)
    assert [each["status"] for each in listed] == ["completed"] * 3, listed
    assert "totals" in onceflow("checkpoints", url, "--state").stdout
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def _says_it_is_away(event: dict[str, Any]) -> bool:
    said = {"progress": "waiting", "warning": "reason"}.get(event["event"])
    return said is not None and "is away" in str(event[said])


def test_a_bucket_that_is_not_there_is_one_sentence(start_job: Any, broker: Any, new_topic: Any) -> None:
    arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--input", new_topic("in", 1))
    job = start_job("s3://nobodys-bucket/x", *arguments, "--output", "out")
    assert job.wait(240) == 1
    assert "can't write s3://nobodys-bucket/x" in job.errors()
    assert "Traceback" not in job.errors()
