"""The archive of Spark's classes on a real JVM: a local Spark uses it, and one that can't says nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.runtime.environment.java import find_java
from onceflow.runtime.hosts.spark.class_archive import archive_options, find_archive, make_archive, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

START_SPARK = """
import sys
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.environment.program import NO_PROGRAM
from onceflow.runtime.hosts.spark.runner import SparkLauncher
settings = {"spark.driver.defaultJavaOptions": sys.argv[1]}
launcher = SparkLauncher("local[*]", JobGraph("job", (), ()), settings, NO_PROGRAM)
while not launcher.wait_ready(1.0):
    pass
launcher.close()
"""
ONCEFLOW = "from onceflow.cli.app import main; main()"


@pytest.fixture(scope="module")
def archive() -> Path:
    """The archive of this machine, made if it is not there."""
    java = find_java()
    return find_archive(java) or make_archive(java)


def test_a_local_spark_maps_its_classes_instead_of_reading_jars(archive: Path, tmp_path: Path) -> None:
    log = tmp_path / "classes"
    done = subprocess.run(
        [sys.executable, "-c", START_SPARK, f"-Xlog:class+load:file={log}"],
        env={name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr in {"", "WARNING: Using incubator modules: jdk.incubator.vector\n"}  # Spark's own
    loaded = log.read_text().splitlines()
    mapped = sum("shared objects file (top)" in line for line in loaded)
    from_jars = sum("/jars/" in line for line in loaded)
    assert mapped > 3_000, (mapped, from_jars, len(loaded))
    assert from_jars < mapped / 10, (mapped, from_jars, len(loaded))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("an archive", "-XX:-UseCompressedOops"),
        ("something else", "-XX:+UseSerialGC"),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [
                ("an archive", "-XX:+UseSerialGC"),
                ("an archive", "-XX:+UseParallelGC"),
                ("something else", "-XX:-UseCompressedOops"),
                ("something else", "-XX:+UseParallelGC"),
            ]
        ),
    ],
)
def test_a_jvm_that_cannot_use_the_archive_starts_and_says_nothing(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, kind: str
) -> None:
    java = find_java()
    options = archive_options(java)
    if content == "something else":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        stem = archive.name.rsplit(".", 2)[0]
        other = tmp_path / "onceflow" / "classes" / f"{stem}.140000.jsa"
        other.parent.mkdir(parents=True)
        other.write_bytes(b"something else" * 10_000)
        options = archive_options(java)
        assert f"-XX:SharedArchiveFile={other}" in options
    jars = f"{spark_home()}/jars/*"
    for class_path in (jars, f"{tmp_path}:{jars}", str(tmp_path)):
        command = [str(java.executable), *options, kind, "-cp", class_path, "-version"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
        assert len(done.stderr.splitlines()) == 3, done.stderr
        assert "warning" not in done.stderr


def test_prepare_says_what_is_ready_and_goes_on_without_java(archive: Path, tmp_path: Path) -> None:
    def prepare(**environment: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", ONCEFLOW, "prepare"],
            env={**os.environ, "ONCEFLOW_KERNELS": "off", **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    kernels, classes = prepare()
    assert kernels.startswith("kernels are off")
    assert classes == "Spark's classes are ready already"
    kernels, classes = prepare(JAVA_HOME=str(tmp_path))
    assert kernels.startswith("kernels are off")
    assert "not made ready: Java 17 or newer is needed" in classes
