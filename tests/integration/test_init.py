"""`onceflow init`: the project that it makes has tests, and they pass; and the fixtures that they use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))


def call(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=240)


@pytest.mark.kafka
def test_the_tests_of_a_new_project_pass(tmp_path: Path, broker: EmbeddedKafka) -> None:
    assert call(ONCEFLOW, "init", "shop-totals", folder=tmp_path).returncode == 0
    project = tmp_path / "shop-totals"
    assert (project / ".github" / "workflows" / "tests.yml").is_file()
    assert "${" not in "".join(path.read_text() for path in project.rglob("*") if path.is_file())
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    plain = call(*tests, folder=project)
    assert "3 passed, 1 deselected" in plain.stdout, plain.stdout + plain.stderr
    assert "warning" not in plain.stdout, "nothing that a newcomer would have to look into"
    kafka = ["-m", "kafka", "--onceflow-bootstrap-servers", broker.bootstrap_servers]
    real = call(*tests, *kafka, folder=project)
    assert "1 passed, 3 deselected" in real.stdout, real.stdout + real.stderr
    plan = call(ONCEFLOW, "plan", "job.py", folder=project)
    assert (plan.returncode, "per-user" in plan.stdout) == (0, True), plan.stderr


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "mine").touch()
    refused = call(ONCEFLOW, "init", "shop", folder=tmp_path)
    assert (refused.returncode, refused.stderr) == (
        2,
        "onceflow: shop is there and not empty: give another name, or --folder\n",
    )
    wrong = call(ONCEFLOW, "init", "../x", folder=tmp_path)
    assert wrong.stderr.startswith("onceflow: the name '../x' can't be used")


FIXTURES = """
import pytest
from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.errors import OnceflowError
from onceflow.sinks.kafka import KafkaSink
from typing import NamedTuple


class Row(NamedTuple):
    n: int


def copy(servers, source, sink):
    job = Job("copy")
    rows = job.source(KafkaSource(bootstrap_servers=servers, topics=[source], value=Json(Row)), uid="rows")
    rows.sink_to(KafkaSink(bootstrap_servers=servers, topic=sink), uid="copied")
    return job


def test_a_job_without_an_end(topic, run_job):
    source, sink = topic("in", partitions=2), topic("out")
    source.produce({"n": 1}, b'{"n": 2}', '{"n": 3}')
    job = run_job(copy(source.bootstrap_servers, source.name, sink.name), slots=2)
    assert sorted(row["n"] for row in sink.records(3)) == [1, 2, 3]
    with pytest.raises(OnceflowError, match="still runs after 0.1 s: one whose sources have no end"):
        job.wait("100 ms")
    job.stop()
    source.produce({"n": 4})
    run_job(copy(source.bootstrap_servers, source.name, sink.name), slots=1)
    assert sorted(row["n"] for row in sink.records(4)) == [1, 2, 3, 4], "it went on from its checkpoint"


def test_a_job_that_fails(topic, run_job):
    source, sink = topic("in"), topic("out")
    source.produce(b"no JSON")
    with pytest.raises(OnceflowError, match="job 'copy' failed: "):
        run_job(copy(source.bootstrap_servers, source.name, sink.name)).wait()
    with pytest.raises(OnceflowError, match="has 0 records after 200 ms, not 1"):
        sink.records(1, timeout="200 ms")
"""


@pytest.mark.kafka
def test_the_fixtures(tmp_path: Path, broker: EmbeddedKafka) -> None:
    (tmp_path / "test_copy.py").write_text(FIXTURES)
    given = ["--onceflow-bootstrap-servers", broker.bootstrap_servers]
    done = call(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given, folder=tmp_path)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
