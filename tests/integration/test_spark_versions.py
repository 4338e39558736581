"""Formats and a job on each version of PySpark: the same programs, the same rows.

What a version can't do is refused with a sentence that names it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("spark_versions_program.py")
JOB = Path(__file__).with_name("spark_versions_job.py")
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
BEFORE, AFTER = 60, 100
"""How many records are there when the copy runs first, and when it runs again."""


def install(version: str, folder: Path) -> Path:
    """Install that PySpark and what it brings, to go before the installed one in the path; or take what
    ONCEFLOW_SPARK_VERSIONS has of it, a folder with one for each version."""
    if (kept := os.environ.get("ONCEFLOW_SPARK_VERSIONS")) and Path(kept, version).is_dir():
        return Path(kept, version)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    subprocess.run([*pip, "--target", str(folder), f"pyspark=={version}.*"], check=True, timeout=400)
    return folder


class Program:
    """It runs; each line that it says is what it found of one kind."""

    def __init__(self, packages: Path, arguments: list[str], errors: Path, program: Path = PROGRAM) -> None:
        local = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
        self._errors = errors
        with errors.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                env={**os.environ, **local, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def told(self, kind: str) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                found = json.loads(line)
                assert list(found) == [kind], found
                return found[kind]
        raise AssertionError(f"it ended before it told {kind}: {self._errors.read_text()[-4_000:]}")

    def ended(self) -> int:
        """The code with which it ended."""
        return self._process.wait(300)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def close(self) -> None:
        self._process.kill()
        self._process.wait(120)


def produce(servers: str, topic: str, first: int, stop: int, time_ms: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(first, stop):
        value = json.dumps({"user": f"u{number % 7}", "amount": number}).encode()
        producer.produce(topic, value, key=b"k", timestamp=time_ms + number)
    producer.flush()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_program_on_another_pyspark(
    version: str, broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic("in", partitions=2), new_topic("out")
    time_ms = int(time.time() * 1_000)
    produce(broker.bootstrap_servers, source, 0, BEFORE, time_ms)
    packages = install(version, tmp_path / "packages")
    arguments = [broker.bootstrap_servers, source, target, str(tmp_path), uuid.uuid4().hex]
    program = Program(packages, arguments, tmp_path / "errors")
    try:
        assert program.told("version").startswith(version + ".")
        assert program.told("empty") == 0
        assert program.told("raw") == ["k", "k"]
        tokyo = datetime.fromtimestamp(time_ms / 1_000, UTC).replace(tzinfo=None) + timedelta(hours=9)
        assert program.told("earliest") == tokyo.isoformat(" ", "milliseconds"), "in the session's zone"
        assert program.told("streamed") == BEFORE
        copies = version != "4.0"
        refused = "writeStream of onceflow-kafka needs PySpark 4.1 or newer, and this is 4.0."
        for count in (BEFORE, AFTER):
            failure = program.told("copied")
            assert failure == "" if copies else refused in failure
            assert program.told("amounts") == (list(range(count)) if copies else [])
            if count == BEFORE:
                produce(broker.bootstrap_servers, source, BEFORE, AFTER, time_ms)
                program.go_on()
        assert program.told("written") == ""
        assert program.told("amounts") == [*(range(AFTER) if copies else []), 1_000]
        limited = program.told("limited")
        if version >= "4.2":
            assert limited == ""
        else:
            assert "needs PySpark 4." in limited
            assert f"and this is {version}." in limited
        assert "did you mean 'topic'" in program.told("refused") or not copies
        into_files = program.told("into_files")
        assert into_files == "" if copies else "onceflow-files needs PySpark 4.1" in into_files, into_files
        if version >= "4.2":
            assert program.told("from_files") == ""
        else:
            assert "readStream of onceflow-files needs PySpark 4.2 or newer" in program.told("from_files")
    finally:
        program.close()
    if copies:
        lines = [line for path in (tmp_path / "in").glob("*.jsonl") for line in path.open()]
        assert sorted(json.loads(line)["amount"] for line in lines) == list(range(AFTER))
    if version >= "4.2":
        rows = [
            row for path in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(path).to_pylist()
        ]
        assert sorted(row["amount"] for row in rows) == list(range(AFTER))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_on_a_local_spark_of_another_version(version: str, tmp_path: Path) -> None:
    packages = install(version, tmp_path / "packages")
    job = Program(packages, [str(tmp_path / "out")], tmp_path / "errors", JOB)
    try:
        assert job.told("version").startswith(version + ".")
        assert job.ended() == 0, (tmp_path / "errors").read_text()[-4_000:]
    finally:
        job.close()
    lines = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.open()]
    assert sum(row["count"] for row in lines) == 1_000
    assert sum(row["total"] for row in lines) == sum(range(1_000))
    assert len(lines) == 14, "seven users in two windows"
