"""`onceflow-kafka` through Spark Connect: the same program, with a session that is elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from confluent_kafka import Producer

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("spark_connect_program.py")
NEEDED = ["pyspark[connect]==" + metadata.version("pyspark"), "pandas<3"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Spark Connect needs besides, in a folder of its own: pyarrow imports pandas where it is there,
    and the other tests and the benchmarks are to run as they do for those who have none."""
    folder = tmp_path_factory.mktemp("connect")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    resolved = [*pip, "install", "--dry-run", "--report", str(folder / "report.json"), *NEEDED]
    subprocess.run(resolved, check=True, timeout=300)
    report = json.loads((folder / "report.json").read_text())
    missing = [f"{each['metadata']['name']}=={each['metadata']['version']}" for each in report["install"]]
    if missing:
        # Not compiled: a twentieth of it is imported.
        install = [*pip, "install", "--no-compile", "--no-deps", "--target", str(folder / "site"), *missing]
        subprocess.run(install, check=True, timeout=300)
    return folder / "site"


def test_streams_batches_and_refusals_pass_through_spark_connect(
    packages: Path, broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic("in", partitions=2), new_topic("out")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(100):
        producer.produce(source, json.dumps({"user": f"u{number % 7}", "amount": number}).encode())
    producer.flush()
    arguments = [broker.bootstrap_servers, source, target, str(tmp_path), uuid.uuid4().hex]
    # A process of its own: a classic session and one of Spark Connect can't be in the same.
    local = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(packages)}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env={**os.environ, **local},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert said[:3] == [
        {"session": "pyspark.sql.connect.session"},
        {"amounts": list(range(100))},
        {"amounts": [*range(100), 1_000]},
    ]
    assert "did you mean 'topic'" in said[3]["refused"]
