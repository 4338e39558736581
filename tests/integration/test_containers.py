"""docker/: the image is built and holds all of onceflow, and a job runs exactly on a cluster of containers.

Needs a container engine with compose, and the base images: from a registry, or by docker/standins/build.sh.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]

REPOSITORY = Path(__file__).resolve().parents[2]
COMPOSE = ["docker", "compose", "-f", str(REPOSITORY / "docker" / "compose.yaml")]
PROFILES = ["--profile", "kafka", "--profile", "spark"]
BUILD_S, START_S, JOB_S = 1800.0, 300.0, 600.0
BASE_IMAGES = ["python:3.11-slim-bookworm", "apache/kafka:4.2.1"]
RECORDS, PARTITIONS = 200_000, 4
PACKAGES = [f"onceflow.{name}" for name in ("cli", "structured_streaming", "connectors", "runtime", "sinks")]


def docker(*arguments: str, timeout: float = START_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


def compose(*arguments: str, port: int, timeout: float = START_S) -> str:
    environment = {**os.environ, "KAFKA_PORT": str(port)}
    done = subprocess.run(
        [*COMPOSE, "-p", f"onceflow-test-{port}", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def image() -> str:
    """Built from this checkout."""
    try:
        is_running = docker("version").returncode == 0
    except FileNotFoundError:
        is_running = False
    if not is_running:
        pytest.skip("there is no container engine: `docker version` fails")
    for name in BASE_IMAGES:
        if docker("image", "inspect", name).returncode and docker("pull", name, timeout=BUILD_S).returncode:
            pytest.skip(f"{name} can't be pulled: sh docker/standins/build.sh makes it without a registry")
    dockerfile = str(REPOSITORY / "docker" / "onceflow.Dockerfile")
    built = docker(
        *("build", "--network", "host", "-f", dockerfile, "-t", "onceflow", str(REPOSITORY)), timeout=BUILD_S
    )
    assert built.returncode == 0, built.stdout[-4000:] + built.stderr[-4000:]
    return "onceflow"


def test_the_image_holds_all_packages_and_what_they_need(image: str) -> None:
    program = (
        f"import {', '.join(PACKAGES)}, numba, fastavro, importlib.metadata, json\n"
        "from onceflow.runtime.kernels.ops import ops\n"
        "files = [str(f) for f in importlib.metadata.files('onceflow')]\n"
        "print(json.dumps({'kernels': ops().are_compiled, 'files': files}))\n"
    )
    said = docker("run", "--rm", image, "python", "-c", program)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["kernels"]
    tracked = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    parts = ("connectors/", "runtime/", "sinks/", "onceflow/")
    code = {name for name in tracked.stdout.split() if name.startswith(parts) and name.endswith(".py")}
    wanted = {name if name.startswith("onceflow/") else f"onceflow/{name}" for name in code}
    assert len(wanted) > 300
    assert wanted <= set(found["files"])


@pytest.fixture
def cluster(image: str) -> Iterator[int]:
    """Kafka, a Spark master and two workers; the port of Kafka on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    try:
        compose(*PROFILES, "up", "-d", "--wait", port=port)
        yield port
    finally:
        compose(*PROFILES, "--profile", "driver", "down", "--volumes", "--timeout", "5", port=port)


def test_a_job_runs_exactly_on_a_cluster_of_containers(cluster: int) -> None:
    """Records come from this machine, the job runs in the containers, and the audit is made here."""
    servers = f"localhost:{cluster}"
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("events", "totals")]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for created in admin.create_topics(topics).values():
        created.result(60)
    script = str(REPOSITORY / "scripts" / "purchases.py")
    loading = [sys.executable, script, "--bootstrap-servers", servers, "--topic", "events"]
    subprocess.run([*loading, "--records", str(RECORDS)], check=True, timeout=JOB_S)
    compose(
        *("run", "--rm", "-T", "driver", "onceflow", "run", "/examples/windowed_totals.py"),
        *("--master", "spark://spark-master:7077", "--parallelism", "4"),
        *("--checkpoint-dir", "/checkpoints/totals", "--checkpoint-interval", "1 s", "--"),
        *(
            "--bootstrap-servers",
            "kafka:19092",
            "--input",
            "events",
            "--output",
            "totals",
            "--until",
            "latest",
        ),
        port=cluster,
        timeout=JOB_S,
    )
    command = [str(Path(sys.executable).with_name("onceflow")), "verify", "--bootstrap-servers", servers]
    command += ["--input", "events", "--output", "totals", "--group-by", "user", "--time", "ts", "--json"]
    command += ["--window", "10 s", "--count", "count", "--sum", "total=amount"]
    audit = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=JOB_S)
    found = json.loads(audit.stdout)
    assert found["input_records"] == RECORDS + PARTITIONS
    assert (found["missing"], found["doubled"], found["wrong"], found["unreadable"]) == (0, 0, 0, 0)
