"""A standalone Master with Workers, and a local-cluster: slots that are missing, come late, or are lost."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.standalone import LOOPBACK, Standalone, quick_java

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
START_MS = 1_700_000_000_000
SMALL = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1"]
SMALL += ["--conf", "spark.driver.bindAddress=127.0.0.1"]
SMALL += ["--conf", f"spark.executor.extraJavaOptions={quick_java()}"]


TAKE_ALL = """
import sys
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.environment.program import NO_PROGRAM
from onceflow.runtime.hosts.spark.runner import SparkLauncher
host = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": sys.argv[2], **host}
launcher = SparkLauncher(sys.argv[1], JobGraph("job", (), ()), settings, NO_PROGRAM)
while not launcher.wait_ready(1.0):
    pass
print(launcher.slots_max)
launcher.close()
"""


class Cluster(Standalone):
    """A Master and Workers on loopback."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._workers: list[str] = []
        with socket.socket() as free:
            free.bind((LOOPBACK, 0))
            port = free.getsockname()[1]
        self.master = f"spark://{LOOPBACK}:{port}"
        self.start("master", "deploy.master.Master", "--port", str(port))

    def add_worker(self, cores: int) -> None:
        self._workers.append(f"worker-{len(self._workers)}")
        self.start_worker(self._workers[-1], self.master, cores)

    def all_executors(self) -> list[psutil.Process]:
        return self.executors(*self._workers)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "spark"
    folder.mkdir()
    cluster = Cluster(folder)
    yield cluster
    cluster.close()


@pytest.fixture
def topics(broker: Any, new_topic: Any, feed: Any) -> tuple[str, ...]:
    """A job's arguments; there are 20,000 records to read."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    feed(servers, source, 4).load(20_000, START_MS)
    return ("--bootstrap-servers", servers, "--input", source, "--output", output)


def waits_for(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: any(text in reason for reason in event["waiting"])


def test_a_job_waits_for_slots_that_come_late_and_for_lost_ones_without_failures(
    cluster: Cluster, topics: tuple[str, ...], start_job: Any, onceflow: Any, tmp_path: Path
) -> None:
    """Four slots and two cores; then two more cores; then an executor is killed, and so two slots are away
    until it is replaced: one failure, whatever that takes."""
    cluster.add_worker(2)
    job = start_job(tmp_path / "ck", *topics, master=cluster.master, parallelism=4, options=SMALL)
    job.wait_event("job_started")
    assert {(e["phase"], e["pid"]) for e in json.loads(onceflow("list", "--json").stdout)} >= {
        ("starting", job.pid)
    }
    job.wait_event("progress", waits_for("the job needs 4 slots, the cluster has 2, since"), timeout=480)
    status = json.loads(onceflow("status", str(tmp_path / "ck"), "--json").stdout)
    assert status["phase"] == "starting"
    assert "needs 4 slots, the cluster has 2" in str(status["waiting"])
    cluster.add_worker(2)
    job.wait_event("checkpoint_completed", timeout=480)
    assert not job.named("attempt_failed"), job.story()
    used = job.wait_event("progress", lambda e: e["slots"] == 4 and 0 < e["busy_ratio"] <= 1)
    assert used["rss_bytes"] > 4 * 30 * 2**20

    since = job.mark
    cluster.all_executors()[0].send_signal(signal.SIGKILL)
    job.wait_event("restarted", after=since, timeout=480)
    failed = job.named("attempt_failed")
    assert len(failed) == 1, failed
    assert re.search(r"slot \d .* was lost|Spark lost executor|ended unexpectedly", failed[0]["reason"])
    job.send(signal.SIGTERM)
    assert job.wait(120) == 0, job.story()
    assert [line for line in job.lines if not line.startswith('{"event"')] == []
    assert not re.search(r"Traceback|\[Stage \d| (?:INFO|WARN) ", job.errors()), job.errors()


def test_without_a_parallelism_a_job_takes_what_has_registered(cluster: Cluster) -> None:
    cluster.add_worker(3)
    done = subprocess.run(
        [sys.executable, "-c", TAKE_ALL, cluster.master, quick_java()],
        capture_output=True,
        text=True,
        timeout=480,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


def test_a_job_that_waits_for_slots_is_stopped_at_once(
    cluster: Cluster, topics: tuple[str, ...], start_job: Any, tmp_path: Path
) -> None:
    """There is no worker at all. Nothing was read, so no last checkpoint is missed."""
    job = start_job(tmp_path / "ck", *topics, master=cluster.master, options=SMALL)
    job.wait_event("progress", waits_for("the job needs 2 slots, the cluster has 0"), timeout=480)
    job.kill_group(signal.SIGINT)
    assert job.wait(240) == 0, job.story()
    assert job.events[-1]["outcome"] == "stopped"
    assert "Traceback" not in job.errors()


def test_a_signal_while_the_master_is_away_ends_the_job(
    topics: tuple[str, ...], start_job: Any, tmp_path: Path
) -> None:
    """Spark itself looks for its master for a minute."""
    job = start_job(tmp_path / "ck", *topics, master="spark://127.0.0.1:9", options=SMALL)
    job.wait_event("progress", lambda e: e["phase"] == "starting", timeout=240)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    assert "Traceback" not in job.errors()


def test_a_master_whose_name_is_not_known_ends_the_job_in_one_sentence(
    topics: tuple[str, ...], start_job: Any, tmp_path: Path
) -> None:
    """Spark looks for it for a minute and says that it was stopped, and an error of each try without what
    it is about."""
    job = start_job(tmp_path / "ck", *topics, master="spark://no-such-host.invalid:7077", options=SMALL)
    assert job.wait(240) == 1, job.story()
    told = job.errors().splitlines()
    assert told[0].startswith(
        "onceflow: Spark did not start on spark://no-such-host.invalid:7077: no answer from the master at "
        "no-such-host.invalid:7077 ("
    )
    assert len(told) == 1, told


def test_what_a_jvm_says_that_does_not_start_is_in_the_one_sentence(
    topics: tuple[str, ...], start_job: Any, tmp_path: Path
) -> None:
    heap = ["--conf", "spark.driver.memory=lots"]
    job = start_job(tmp_path / "ck", *topics, master="local[2]", options=heap)
    assert job.wait(240) == 1, job.story()
    told = job.errors().splitlines()
    assert "did not start: Invalid maximum heap size: -Xmxlots; Could not create the Java" in told[0]
    assert "fix the cause, then run the same command again" in told[1]
    assert len(told) == 2, told


def test_a_local_cluster_refuses_more_slots_than_it_can_have(
    topics: tuple[str, ...], start_job: Any, tmp_path: Path
) -> None:
    """What it runs: see test_encrypted.py."""
    master = "local-cluster[2,1,1024]"
    job = start_job(tmp_path / "ck", *topics, master=master, parallelism=3, options=SMALL)
    assert job.wait(120) == 2, job.story()
    assert f"parallelism=3 needs as many slots at once, {master} has 2" in job.errors()
    assert len(job.errors().splitlines()) == 1


def test_more_slots_than_the_jvm_finds_cores_fail_the_job_in_one_sentence(
    topics: tuple[str, ...], start_job: Any, tmp_path: Path
) -> None:
    job = start_job(tmp_path / "ck", *topics, master="local[*]", parallelism=99)
    assert job.wait(240) == 1, job.story()
    assert "the job needs 99 slots at once, local[*] has" in job.errors()
    assert not job.named("attempt_failed")
    assert "Traceback" not in job.errors()
