"""From Spark's and Py4J's texts, as Spark 4.3 wrote them (frames left out), to the cause in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceflow.runtime.checkpoint.fingerprints import Unexpected, fingerprints
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable, Unavailable
from onceflow.runtime.hosts.spark.spark_errors import cause_of, error_of, is_too_few_slots

TEXTS: dict[str, str] = json.loads(Path(__file__).with_name("spark_error_texts.json").read_text())
CAUSES = {
    "too many": "Spark has fewer slots than the attempt needs",
    "exception": "ValueError: a value is wrong",
    "worker killed": "a slot's Python process ended unexpectedly: it was killed, or it crashed",
    "worker exits": "a slot's Python process ended unexpectedly: it was killed, or it crashed",
    "memory": "MemoryError",
    "cancelled": "Job 6 cancelled part of cancelled job group g",
    "executor killed": "Spark lost executor 0: Command exited with code 137",
    "jvm gone": "Spark lost executor 1: Command exited with code 143",
    "jvm gone before": "[Errno 111] Connection refused",
    "start: memory": "Java gateway process exited before sending its port number.",
    "unserializable": "Could not serialize object: TypeError: cannot pickle '_thread.lock' object",
}
CALLING = "An error occurred while calling o1.x.\n"


def raised(name: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
        f"onceflow.runtime.errors.{name}: the driver at d:1 can't be reached\n"
    )


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (raised("Fatal"), Fatal),
        (raised("Unavailable"), Unavailable),
        (raised("Retryable"), Retryable),
        (raised("BadRecordError"), Retryable),
    ],
)
def test_what_a_slot_raised_before_it_reached_the_driver_stays_what_it_is(
    text: str, kind: type[OnceflowError]
) -> None:
    error = error_of(text, lambda: "10.0.0.2")
    assert type(error) is kind
    assert str(error) == "the driver at d:1 can't be reached"


@pytest.mark.parametrize(
    ("raised", "is_mistake"),
    [
        ("ValueError: 'job' does not appear to be an address", True),
        ("ModuleNotFoundError: No module named 'shop'", True),
        ("AssertionError", True),
        ("ConnectionResetError: [Errno 104] Connection reset by peer", False),
        ("MemoryError", False),
        ("shop.ValueError: own", False),
    ],
)
def test_what_a_slot_did_not_expect_is_the_same_failure_the_next_time(raised: str, is_mistake: bool) -> None:
    def failure(number: int) -> frozenset[str]:
        text = f'Traceback (most recent call last):\n  File "a.py", line {number}, in f\n{raised}\n'
        return fingerprints(error_of(text, lambda: None))

    assert failure(1) == failure(2)
    assert bool(failure(1)) is is_mistake


def test_a_python_in_which_slots_can_not_run_is_fatal_and_its_host_is_named() -> None:
    text = (
        f'{CALLING}: java.io.IOException: Cannot run program "python9": error=2, No such file or directory\n'
    )
    error = error_of(text, lambda: "10.0.0.2")
    assert isinstance(error, Fatal)
    assert str(error).startswith("on 10.0.0.2: the slots' Python, python9, can't be started (No such file")
    assert str(error_of(text, lambda: None)).startswith("on a worker: ")


@pytest.mark.parametrize("name", CAUSES)
def test_all_else_may_pass(name: str) -> None:
    kind = Unexpected if name == "exception" else Retryable
    assert type(error_of(TEXTS[name], lambda: None)) is kind
    assert str(error_of(TEXTS[name], lambda: None)) == CAUSES[name]


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_of_what_spark_says(name: str) -> None:
    assert cause_of(TEXTS[name]) == CAUSES[name]


@pytest.mark.parametrize("name", TEXTS)
def test_a_cause_is_one_line_without_names_of_the_jvm(name: str) -> None:
    cause = cause_of(TEXTS[name])
    assert cause
    assert len(cause.splitlines()) == 1
    for inside in ("z:org.", "org.apache", "collectAndServe", "\tat ", "SQLSTATE", "Traceback"):
        assert inside not in cause


def test_only_spark_itself_finds_too_few_slots() -> None:
    assert [name for name, text in TEXTS.items() if is_too_few_slots(text)] == ["too many"]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "Spark gave no reason"),
        (CALLING, "Spark gave no reason"),
        (f"{CALLING}: java.lang.NullPointerException\n\tat a.B.c(B.scala:1)", "NullPointerException"),
        (
            f"{CALLING}: org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
            "\tat a.B.c(B.scala:1)\nCaused by: java.io.IOException: Failed to connect to /127.0.0.1:9\n"
            "\tat d.E.f(E.scala:2)\n\t... 3 more",
            "Failed to connect to /127.0.0.1:9",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
            "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\nThis stopped",
            "Spark was stopped",
        ),
        (
            'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
            "onceflow.runtime.errors.Fatal: the driver runs onceflow 2, this executor 1: install the same "
            "version on both\n",
            "Fatal: the driver runs onceflow 2, this executor 1: install the same version on both",
        ),
        ("x" * 1_000, "x" * 499 + "…"),
    ],
)
def test_other_texts(text: str, cause: str) -> None:
    assert cause_of(text) == cause
