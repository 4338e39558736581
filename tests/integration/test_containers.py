"""docker/: the image is built and holds all of onceflow, and jobs run exactly on a cluster of containers.

Needs a container engine with compose, and the base images: from a registry, or by docker/standins/build.sh.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

pytestmark = [pytest.mark.docker, pytest.mark.timeout(2400)]

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_S, START_S, JOB_S = 1800.0, 300.0, 600.0
IMAGES = dict(re.findall(r"\$\{(\w+_IMAGE):-([^}]+)\}", (REPOSITORY / "docker" / "compose.yaml").read_text()))
"""The images that docker/compose.yaml takes unless its variables name others."""
RECORDS, PARTITIONS = 200_000, 4
PURCHASES, START_MS, WINDOW_MS = 20_000, 1_700_000_000_000, 10_000
PACKAGES = [f"onceflow.{name}" for name in ("cli", "structured_streaming", "connectors", "runtime", "sinks")]
ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))


def docker(*arguments: str, timeout: float = START_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False
    )


def need(*images: str) -> None:
    """Each is here or can be pulled, or the test is skipped. Those of IMAGES go by their variables."""
    for name in (os.environ.get(each, IMAGES.get(each, each)) for each in images):
        if docker("image", "inspect", name).returncode and docker("pull", name, timeout=BUILD_S).returncode:
            pytest.skip(f"{name} can't be pulled: sh docker/standins/build.sh makes it without a registry")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass(frozen=True)
class Project:
    """One run of docker/compose.yaml, with ports of this machine of its own."""

    kafka: int
    registry: int
    postgres: int
    s3: int

    def __call__(self, *arguments: str, timeout: float = START_S) -> str:
        ports = {f"{name.upper()}_PORT": str(port) for name, port in vars(self).items()}
        file = str(REPOSITORY / "docker" / "compose.yaml")
        done = subprocess.run(
            ["docker", "compose", "-f", file, "-p", f"onceflow-test-{self.kafka}", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env={**os.environ, **ports},
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture
def compose(image: str) -> Iterator[Project]:
    """Nothing runs yet; afterwards nothing runs any more."""
    project = Project(*(free_port() for _ in range(4)))
    yield project
    everything = ("--profile", "kafka", "--profile", "spark", "--profile", "driver", "--profile", "job")
    project(*everything, "down", "--volumes", "--timeout", "5")


@pytest.fixture(scope="module")
def image() -> str:
    """Built from this checkout."""
    try:
        is_running = docker("version").returncode == 0
    except FileNotFoundError:
        is_running = False
    if not is_running:
        pytest.skip("there is no container engine: `docker version` fails")
    need("python:3.11-slim-bookworm", "KAFKA_IMAGE")
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


def test_a_job_runs_exactly_on_a_cluster_of_containers(compose: Project) -> None:
    """Records come from this machine, the job runs in the containers, and the audit is made here."""
    compose("--profile", "kafka", "--profile", "spark", "up", "-d", "--wait")
    servers = f"localhost:{compose.kafka}"
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
        timeout=JOB_S,
    )
    command = [ONCEFLOW, "verify", "--bootstrap-servers", servers]
    command += ["--input", "events", "--output", "totals", "--group-by", "user", "--time", "ts", "--json"]
    command += ["--window", "10 s", "--count", "count", "--sum", "total=amount"]
    audit = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=JOB_S)
    found = json.loads(audit.stdout)
    assert found["input_records"] == RECORDS + PARTITIONS
    assert (found["missing"], found["doubled"], found["wrong"], found["unreadable"]) == (0, 0, 0, 0)


def test_the_example_job_uses_kafka_a_registry_postgres_and_s3_and_survives_kill_9(compose: Project) -> None:
    """`up` as docker/compose.yaml says it; the containers of the job and of a worker are killed meanwhile."""
    need(*IMAGES)
    compose("--profile", "job", "up", "-d", timeout=JOB_S)
    chance = random.Random(5)
    expected: Counter[tuple[str, int]] = Counter()
    for part in range(4):
        produce(compose, purchases(chance, part, expected))
        wait_for_rows(compose, 100 * (part + 1))  # the job has come so far, and is killed on its way
        container = ("job", "spark-worker")[part % 2]
        compose("kill", "-s", "SIGKILL", container)
        compose("--profile", "job", "up", "-d", timeout=JOB_S)
    produce(compose, [{"user": "end", "amount": 0, "ts": START_MS + 10_000_000}], every_partition=True)
    wait_for_rows(compose, len(expected))
    assert Counter(dict(table(compose))) == expected


def purchases(chance: random.Random, part: int, expected: Counter[tuple[str, int]]) -> list[dict[str, Any]]:
    """A quarter of the input, in order of time; its totals are added to what is expected."""
    rows = []
    for number in range(part * PURCHASES // 4, (part + 1) * PURCHASES // 4):
        user, amount, ts = f"u{chance.randrange(50)}", chance.randrange(1, 5_000), START_MS + number * 10
        expected[user, (ts // WINDOW_MS + 1) * WINDOW_MS] += amount
        rows.append({"user": user, "amount": amount, "ts": ts})
    return rows


def produce(compose: Project, rows: list[dict[str, Any]], *, every_partition: bool = False) -> None:
    fields = [{"name": "user", "type": "string"}, *({"name": n, "type": "long"} for n in ("amount", "ts"))]
    schema = json.dumps({"type": "record", "name": "Purchase", "namespace": "shop", "fields": fields})
    with tempfile.NamedTemporaryFile("w", suffix=".avsc") as file:
        file.write(schema)
        file.flush()
        command = [ONCEFLOW, "broker", "produce", "purchases", "--schema", file.name]
        command += ["--bootstrap-servers", f"localhost:{compose.kafka}"]
        command += ["--registry", f"http://localhost:{compose.registry}/apis/ccompat/v7"]
        where = [["--partition", str(number)] for number in range(PARTITIONS)]
        for to in where if every_partition else [["--key-field", "user"]]:
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            subprocess.run([*command, *to], input=text, text=True, check=True, timeout=START_S)


def table(compose: Project) -> list[tuple[tuple[str, int], int]]:
    """Key and total of each row; nothing before the job has made the table."""
    login = {"user": "onceflow", "password": "onceflow", "dbname": "shop"}
    with psycopg.connect(host="localhost", port=compose.postgres, **login) as connection:
        try:
            rows = connection.execute('select "user", window_end, total from totals').fetchall()
        except psycopg.errors.UndefinedTable:
            return []
    return [((user, end), total) for user, end, total in rows]


@retry(stop=stop_after_delay(JOB_S), wait=wait_fixed(0.5), retry=retry_if_result(lambda done: not done))
def wait_for_rows(compose: Project, rows: int) -> bool:
    return len(table(compose)) >= rows
