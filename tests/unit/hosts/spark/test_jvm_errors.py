"""What a JVM writes to standard error comes through, but for what it writes at each start."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from py4j.java_gateway import GatewayClient
from py4j.protocol import Py4JNetworkError

from onceflow.runtime.hosts.spark.jvm_errors import JvmErrors, is_not_py4j

AT_EACH_START = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
26/11/25 00:10:00 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...
Setting default log level to "WARN".
WARNING: A terminally deprecated method in sun.misc.Unsafe has been called
WARNING: sun.misc.Unsafe::arrayBaseOffset has been called by org.apache.spark.unsafe.Platform (file:/x.jar)
WARNING: Please consider reporting this to the maintainers of class org.apache.spark.unsafe.Platform
WARNING: sun.misc.Unsafe::arrayBaseOffset will be removed in a future release
"""
ABOUT_THIS_ONE = """\
WARNING: An illegal thing has occurred
00:10:00 ERROR SparkContext: Error initializing SparkContext.
java.lang.OutOfMemoryError: Java heap space
\tat sun.misc.Unsafe.allocateMemory(Native Method)
"""


OF_EXECUTORS = """\
00:10:00 INFO StandaloneAppClient$ClientEndpoint: Executor updated: app-1/0 is now EXITED (Command)
00:10:00 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 10.0.0.1:7077
"""


def test_what_is_said_of_executors_is_handed_over_and_not_shown() -> None:
    read_end, target = os.pipe()
    heard: list[str] = []
    error = "00:10:00 ERROR StandaloneAppClient$ClientEndpoint: All masters are unresponsive! Giving up.\n"
    errors = JvmErrors(target, heard.append).handed_out
    program = f"import sys; sys.stderr.write({OF_EXECUTORS + error!r})"
    subprocess.run([sys.executable, "-c", program], stderr=errors, check=True)
    os.close(errors)
    with os.fdopen(read_end) as seen:
        assert seen.readline() == error
    os.close(target)
    assert heard == OF_EXECUTORS.splitlines()


def test_only_what_is_said_at_each_start_is_left_out_and_it_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read_end, target = os.pipe()
    program = f"import sys; sys.stderr.write({AT_EACH_START + ABOUT_THIS_ONE!r})"
    with caplog.at_level(logging.INFO, "onceflow"):
        errors = JvmErrors(target).handed_out
        subprocess.run([sys.executable, "-c", program], stderr=errors, check=True)
        os.close(errors)
        with os.fdopen(read_end) as seen:
            got = [seen.readline() for _ in ABOUT_THIS_ONE.splitlines()]
    os.close(target)
    assert "".join(got) == ABOUT_THIS_ONE
    assert [record.message for record in caplog.records] == AT_EACH_START.splitlines()


NO_YARN = """\
Exception in thread "main" org.apache.spark.SparkException: When running with master 'yarn' set a folder.
\tat org.apache.spark.deploy.SparkSubmitArguments.error(SparkSubmitArguments.scala:670)
"""
NO_HEAP = """\
Invalid maximum heap size: -Xmxlots
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (NO_YARN, "When running with master 'yarn' set a folder."),
        (NO_HEAP, "Invalid maximum heap size: -Xmxlots; Could not create the Java Virtual Machine"),
        (
            "Error occurred in the VM\nToo small maximum heap\n",
            "Error occurred in the VM; Too small maximum heap",
        ),
        (AT_EACH_START, ""),
    ],
)
def test_what_a_jvm_said_that_did_not_start_is_one_sentence_and_nothing_besides(
    said: str, cause: str
) -> None:
    read_end, target = os.pipe()
    errors = JvmErrors(target, holds=True)
    subprocess.run(
        [sys.executable, "-c", f"import sys; sys.stderr.write({said!r})"],
        stderr=errors.handed_out,
        check=True,
    )
    os.close(errors.handed_out)
    assert errors.cause() == cause
    os.close(target)
    with os.fdopen(read_end) as seen:
        assert seen.read() == ""


def test_what_a_jvm_says_while_it_starts_comes_through_once_it_is_up() -> None:
    read_end, target = os.pipe()
    errors = JvmErrors(target, holds=True)
    program = f"import sys; sys.stderr.write({ABOUT_THIS_ONE!r})"
    subprocess.run([sys.executable, "-c", program], stderr=errors.handed_out, check=True)
    errors.release()
    os.close(errors.handed_out)
    with os.fdopen(read_end) as seen:
        assert [seen.readline() for _ in ABOUT_THIS_ONE.splitlines()] == ABOUT_THIS_ONE.splitlines(
            keepends=True
        )
    os.close(target)


class _DeadJvm:
    """A connection to a JVM that has died in the middle of a call."""

    socket = None

    def send_command(self, command: str) -> str:
        raise Py4JNetworkError("Error while sending or receiving")

    def close(self, reset: bool) -> None:
        pass


class _ClientOfDeadJvm(GatewayClient):  # type: ignore[misc]
    def _get_connection(self) -> _DeadJvm:
        return _DeadJvm()

    def _should_retry(self, *_: object) -> bool:
        return False


@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_call_into_a_jvm_that_dies_prints_no_traceback(
    is_filtered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    root = logging.getLogger()
    if is_filtered:
        root.addFilter(is_not_py4j)
    try:
        with caplog.at_level(logging.INFO):
            _ClientOfDeadJvm().send_command("c")
            root.error("a user's own")
    finally:
        root.removeFilter(is_not_py4j)
    loud = [record.module for record in caplog.records if record.levelno >= logging.WARNING]
    assert loud == ["test_jvm_errors"] if is_filtered else ["java_gateway", "test_jvm_errors"]
    if is_filtered:
        (kept,) = (record for record in caplog.records if record.name.startswith("onceflow"))
        assert kept.exc_info is not None
        assert "while sending" in kept.getMessage()
