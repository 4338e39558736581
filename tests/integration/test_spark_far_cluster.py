"""A standalone cluster whose Master, Workers and driver are on machines of their own, so that slots reach
each other over a network: what is killed and what is cut off there leaves the output exact."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deployment_page import said
from tests.integration.namespaces import Machines, why_not
from tests.integration.standalone import Standalone

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

MASTER_PORT = 7077
CUT_S = 20.0


class FarCluster(Standalone):
    """A Master, and two Workers with two cores each, on machines of these names."""

    def __init__(self, machines: Machines, folder: Path) -> None:
        super().__init__(folder)
        self._machines = machines
        self.master = f"spark://{machines.addresses['master']}:{MASTER_PORT}"
        self.start("master", "deploy.master.Master", "--port", str(MASTER_PORT), **self._place("master"))
        for name in ("one", "two"):
            self.add_worker(name)

    def add_worker(self, name: str) -> None:
        self.start_worker(name, self.master, 2, **self._place(name))

    def _place(self, name: str) -> Any:
        return {"address": self._machines.addresses[name], "on": self._machines.on(name)}


@pytest.fixture
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    if reason := why_not():
        pytest.skip(reason)
    with Machines(tmp_path_factory.mktemp("m"), "driver", "master", "one", "two") as four:
        yield four


@pytest.fixture
def cluster(machines: Machines, tmp_path: Path) -> Iterator[FarCluster]:
    folder = tmp_path / "spark"
    folder.mkdir()
    far = FarCluster(machines, folder)
    yield far
    far.close()


@pytest.fixture
def start(
    cluster: FarCluster, machines: Machines, broker: Any, start_job: Any, tmp_path: Path
) -> Callable[[str, str], Any]:
    """`start(source, output)`: the job, on the driver's machine, with four slots on two others."""
    machines.lend_port(int(broker.bootstrap_servers.split(":")[1]))
    address = machines.addresses["driver"]
    options = ["--conf", "spark.executor.memory=512m", "--conf", f"spark.driver.host={address}"]
    options += ["--conf", f"spark.driver.bindAddress={address}"]
    servers = broker.bootstrap_servers

    def start_it(source: str, output: str) -> Any:
        arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
        return start_job(
            tmp_path / "ck",
            *arguments,
            master=cluster.master,
            parallelism=4,
            options=options,
            env={"SPARK_LOCAL_IP": address},
            on=machines.on("driver"),
        )

    return start_it


def test_a_firewall_between_workers_and_driver_ends_the_job_in_one_sentence(
    machines: Machines, start: Callable[[str, str], Any], new_topic: Any
) -> None:
    """No answer comes, and no refusal either: executors would try for minutes."""
    for name in ("one", "two"):
        machines.lose("driver", name)
    job = start(new_topic("in", 4), new_topic("out", 4))
    assert job.wait(180) == 1, job.story()
    assert said("a way from executors to the driver").search(job.errors()), job.errors()
    assert f"on {machines.addresses['one']} since" in job.errors() or (
        f"on {machines.addresses['two']} since" in job.errors()
    )
    assert not job.named("restarted"), job.story()


def test_kills_and_a_cut_cable_on_a_cluster_of_several_machines(
    cluster: FarCluster,
    machines: Machines,
    start: Callable[[str, str], Any],
    broker: Any,
    new_topic: Any,
    feed: Any,
    judge: Any,
    follow: Any,
) -> None:
    """A slot, an executor, a whole worker, the driver are killed, and a worker is cut off for 20 s; output
    goes on after each, and is exact at the end."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    data, rows = feed(servers, source, 4), follow(servers, output)
    job = start(source, output)
    job.wait_event("checkpoint_completed", timeout=180)
    data.run(2_000)
    rows.wait_rows(1_000, job, timeout=480)

    def goes_on() -> None:
        rows.wait_rows(len(rows.arrivals) + 1_000, job, timeout=180)

    os.kill(job.slots()[0], signal.SIGKILL)
    goes_on()
    cluster.executors("one")[0].kill()
    goes_on()
    cluster.kill("two")
    cluster.add_worker("two")
    goes_on()
    machines.cut("one")
    rows.wait_some(CUT_S)
    machines.mend("one")
    goes_on()
    job.kill_group()
    job.wait()
    job = start(source, output)
    goes_on()
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job, timeout=180)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    print(f"4 kills, a cut of {CUT_S:g} s, {len(expected)} windows: {verdict}")
    assert verdict.is_exact, verdict
