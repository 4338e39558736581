"""The broker of a user's tests in a container: how it is asked for, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.runtime.errors import UsageError
from onceflow.testing.container_broker import container_broker
from onceflow.testing.pytest_plugin import broker_kind

pytest_plugins = ["pytester"]

IN_A_USERS_PROJECT = """
from typing import NamedTuple

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


class Row(NamedTuple):
    n: int


def test_rows_are_committed(topic, run_job):
    source, output = topic("in"), topic("out")
    source.produce({"n": 1})
    job = Job("copy")
    servers = source.bootstrap_servers
    rows = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[source.name], value=Json(Row), until="latest")
    )
    rows.sink_to(KafkaSink(bootstrap_servers=servers, topic=output.name))
    run_job(job).wait("2 min")
    assert output.records(1) == [{"n": 1}]
"""


@pytest.mark.parametrize(
    ("options", "variable", "ini", "expected"),
    [
        ((), "", "", "process"),
        ((), "", "onceflow_broker = container", "container"),
        ((), "container", "onceflow_broker = process", "container"),
        (("--onceflow-broker=process",), "container", "onceflow_broker = container", "process"),
    ],
)
def test_the_option_comes_before_the_environment_and_that_before_the_file(
    options: tuple[str, ...],
    variable: str,
    ini: str,
    expected: str,
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONCEFLOW_BROKER", variable)
    pytester.makeini(f"[pytest]\n{ini}\n")
    assert broker_kind(pytester.parseconfig(*options)) == expected


def test_another_word_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCEFLOW_BROKER", "docker")
    with pytest.raises(pytest.UsageError, match="is 'docker': write process or container"):
        broker_kind(pytester.parseconfig())


def test_without_an_engine_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with (
        pytest.raises(
            UsageError, match=r"no container engine answers.*or run the tests with --onceflow-broker"
        ),
        container_broker(),
    ):
        pass


@pytest.mark.docker
def test_an_exactly_once_job_runs_on_a_broker_in_a_container(tmp_path: Path) -> None:
    is_there = shutil.which("docker") and not subprocess.call(
        ["docker", "version"], stdout=subprocess.DEVNULL
    )
    if not is_there:
        pytest.skip("there is no container engine: `docker version` fails")
    (tmp_path / "test_it.py").write_text(IN_A_USERS_PROJECT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "--onceflow-broker=container"]
    environment = {
        **os.environ,
        "TESTCONTAINERS_RYUK_DISABLED": "true",
    }  # an image of its own, from a registry
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
