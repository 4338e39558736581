"""Jobs whose checkpoint folder is on S3, Azure or HDFS: killed, cut off from it, and asked by commands."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from onceflow.runtime.checkpoint.store_url import open_store
from tests.azure_server import AzureServer
from tests.hdfs_server import HdfsServer
from tests.integration.forks import Forks
from tests.s3_server import S3Server, gateway

pytestmark = pytest.mark.kafka
OPTIONS = ("--slot-timeout", "10 s", "--restart", "fixed:200 ms:100")


SERVERS = {"s3": lambda: S3Server(gateway()), "azure": AzureServer, "hdfs": HdfsServer}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture(scope="module")
def forks(server: Any) -> Iterator[Forks]:
    """Processes whose environment says where the store is."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in server.environment.items():
            environment.setenv(name, value)
        forks = Forks()
        yield forks
        forks.close()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 18))])
def test_killed_three_times_each_row_is_there_once(
    seed: int,
    server: Any,
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
    url = server.new_folder()

    def start() -> Any:
        return start_job(url, *arguments, interval="100 ms", options=OPTIONS)

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
    if isinstance(server, S3Server):
        assert not server.uploads(url.split("/")[2])
    attempts = {status.path.split("/")[1] for status in open_store(url, server.options).list("state")}
    assert len(attempts) <= 2, f"what earlier attempts had left was deleted: {attempts}"


@pytest.mark.parametrize("away_s", [4, pytest.param(60, marks=pytest.mark.soak)])
def test_a_store_that_is_away_holds_up_checkpoints_and_nothing_else(
    away_s: int,
    server: Any,
    onceflow: Any,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
) -> None:
    if isinstance(server, S3Server) and server.kind == "moto":
        pytest.skip("moto forgets everything when it is ended")
    if isinstance(server, AzureServer) and away_s < 30:
        pytest.skip("its client tries for longer before it says that the store is away")
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(2_000)
    url = server.new_folder()
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


def test_a_folder_that_is_not_there_is_one_sentence(
    server: Any, start_job: Any, broker: Any, new_topic: Any
) -> None:
    scheme, _, place = server.new_folder().partition("://")
    nowhere = f"{scheme}://nobodys-bucket/x" if scheme != "hdfs" else f"hdfs://127.0.0.1:1/{place}"
    arguments = ("--bootstrap-servers", broker.bootstrap_servers, "--input", new_topic("in", 1))
    job = start_job(nowhere, *arguments, "--output", "out")
    assert job.wait(240) == 1
    assert nowhere in job.errors()
    assert "Traceback" not in job.errors()
