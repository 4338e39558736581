"""A Python in which slots can't run is told in the sentence of docs/deployment.md."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

from onceflow.runtime.hosts.spark.worker_environment import (
    EXPECTED,
    check_environment,
    environment_error,
    expected,
    import_error,
)
from onceflow.runtime.version import VERSION
from tests.deployment_page import said

PYTHON = "{}.{}".format(*sys.version_info[:2])
DAEMON = [sys.executable, "-m", "onceflow.runtime.hosts.spark.daemon"]
SPARK_SAYS = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: ResultStage 0 (count at x.py:1) failed
"""
OF_PYTHON = """org.apache.spark.SparkException: \

Error from python worker:
  {}
PYTHONPATH was:
  /site-packages/pyspark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from x.daemon's stdout
"""
NO_SPEC = (
    "./environment/bin/python: Error while finding module specification for "
    "'onceflow.runtime.hosts.spark.daemon' (ModuleNotFoundError: No module named '{}')"
)
TEXTS = {
    "no such Python on a Worker": (
        'java.io.IOException: Cannot run program "/opt/python": error=2, No such file or directory\n'
        "Caused by: java.io.IOException: error=2, No such file or directory\n"
    ),
    "no onceflow in it": OF_PYTHON.format(NO_SPEC.format("onceflow")),
    "another minor version of Python": (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
        f"different version: 3.9 than that in driver: {PYTHON}, PySpark cannot run with them.\n"
    ),
}


def daemon_says(environment: Mapping[str, str]) -> str:
    """What the daemon says on standard error; it ends at once."""
    ended = subprocess.run(
        DAEMON, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended.stderr.strip()


@pytest.mark.parametrize("what", TEXTS)
def test_what_spark_says_of_a_python_becomes_the_sentence_of_the_page(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    sentence = environment_error(SPARK_SAYS + TEXTS[what])
    assert said(what).fullmatch(f"on 10.0.0.2: {sentence}"), sentence


@pytest.mark.parametrize(
    ("what", "drivers"),
    [
        ("another minor version of Python", f"{VERSION} 3.9"),
        ("another version of onceflow", f"0.0.1 {PYTHON}"),
    ],
)
def test_a_daemon_of_another_version_than_the_driver_says_so_before_it_forks_a_slot(
    what: str, drivers: str
) -> None:
    told = daemon_says({EXPECTED: drivers})
    sentence = environment_error(SPARK_SAYS + OF_PYTHON.format(told))
    assert said(what).fullmatch(f"on 10.0.0.2: {sentence}"), sentence


def test_a_daemon_of_the_drivers_version_or_of_a_driver_that_says_nothing_goes_on() -> None:
    check_environment({EXPECTED: expected()})
    check_environment({})


def test_a_module_that_is_missing_is_named() -> None:
    ended = import_error("polars", ModuleNotFoundError("No module named 'polars'"))
    sentence = environment_error(SPARK_SAYS + OF_PYTHON.format(ended))
    assert said("onceflow without what it needs").fullmatch(f"on 10.0.0.2: {sentence}"), sentence


def test_an_onceflow_without_our_daemon_is_another_version() -> None:
    text = OF_PYTHON.format(
        f"{NO_SPEC}daemon' (ModuleNotFoundError: No module named 'onceflow.runtime.hosts')"
    )
    sentence = environment_error(SPARK_SAYS + text)
    assert sentence is not None
    assert "./environment/bin/python, has another onceflow than the driver" in sentence


def test_whatever_else_a_python_says_that_does_not_start_is_told() -> None:
    told = "Fatal Python error: init_fs_encoding\n  ModuleNotFoundError: No module named 'encodings'"
    sentence = environment_error(SPARK_SAYS + OF_PYTHON.format(told))
    assert sentence == "the slots' Python can't be started: ModuleNotFoundError: No module named 'encodings'"


def test_other_failures_are_none_of_the_environments() -> None:
    assert (
        environment_error(SPARK_SAYS + "ExecutorLostFailure (executor 0 exited) Reason: Command exited")
        is None
    )
