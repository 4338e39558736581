"""What two failures have in common: the same mistake again, or something that may pass."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

import onceflow
from onceflow.runtime.checkpoint.fingerprints import fingerprints, is_unavailable
from onceflow.runtime.errors import Fenced, Indeterminate, Retryable, Unavailable
from onceflow.runtime.operators.stateless import call_each
from onceflow.runtime.records import Origin, Records


def caught(function: Callable[[], Any]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("it does not raise")


def records(offset: int) -> Records:
    batch = pa.record_batch({"x": [1]})
    origin = Origin(("in-1",), np.zeros(1, np.uint16), np.array([offset], np.int64))
    return Records(batch, None, None, origin)


def of_function(raises: BaseException, offset: int = 5) -> frozenset[str]:
    """The fingerprints of what a job fails with when the user's function raises this on a record."""

    def fn(_: object) -> object:
        raise raises

    return fingerprints(caught(lambda: call_each("score", fn, [object()], records(offset))))


def test_an_unexpected_error_is_the_same_at_the_same_line_up_to_numbers_and_ids() -> None:
    def look_up(key: str) -> object:
        empty: dict[str, object] = {}
        return empty[key]

    first, second = (fingerprints(caught(lambda: look_up(key))) for key in ("total-7", "total-19"))  # noqa: B023
    assert first == second != frozenset()
    assert fingerprints(caught(lambda: look_up("count"))) != first
    assert fingerprints(caught(lambda: {}["total-7"])) != first, "another line"


def test_a_users_error_is_the_same_on_any_record() -> None:
    assert of_function(ValueError("no luck"), 5) & of_function(ValueError("no luck"), 6)
    assert not of_function(ValueError("no luck"), 5) & of_function(ValueError("bad key"), 6)
    assert not of_function(ValueError("no luck"), 5) & of_function(TypeError("no luck"), 6)


def test_a_users_error_is_the_same_if_only_numbers_differ_but_not_at_another_line_or_operator() -> None:
    def at_two_lines(amount: int) -> None:
        if amount < 0:
            raise ValueError(f"amount {amount} is not allowed")
        raise ValueError(f"amount {amount} is not allowed")

    def of(uid: str, amount: int) -> frozenset[str]:
        def fn(_: object) -> None:
            at_two_lines(amount)

        return fingerprints(caught(lambda: call_each(uid, fn, [object()], records(amount + 100))))

    assert of("score-1", -3) & of("score-1", -17)
    assert not of("score-1", -3) & of("score-1", 17), "another line"
    assert not of("score-1", -3) & of("score-2", -17), "another operator"


def test_a_retryable_of_the_users_may_pass_and_names_the_operator_and_the_record() -> None:
    def fn(_: object) -> object:
        raise onceflow.Retryable("the service is busy")

    error = caught(lambda: call_each("score", fn, [object()], records(5)))
    assert type(error) is Retryable
    assert fingerprints(error) == frozenset()
    for part in (
        "operator 'score'",
        "in-1 at offset 5",
        "test_fingerprints.py:",
        "Retryable: the service is busy",
    ):
        assert part in str(error)


def test_a_users_error_is_the_same_on_the_same_record_whatever_it_says() -> None:
    assert of_function(ValueError("red"), 5) & of_function(ValueError("green"), 5)
    assert not of_function(ValueError("red"), 5) & of_function(ValueError("green"), 55)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
        TimeoutError("timed out"),
        OSError(errno.EIO, "input/output error"),
        MemoryError(),
        KafkaException(KafkaError(KafkaError._TRANSPORT)),
    ],
)
def test_what_the_system_says_may_pass_also_in_a_users_function(error: Exception) -> None:
    assert fingerprints(error) == frozenset()
    assert of_function(error) == frozenset()

    def wrapped() -> None:
        try:
            raise error
        except Exception as cause:
            raise RuntimeError("the service does not answer") from cause

    assert of_function(caught(wrapped)) == frozenset()


def test_a_file_that_is_not_there_does_not_pass() -> None:
    assert of_function(FileNotFoundError(errno.ENOENT, "no such file", "model.bin"))
    assert of_function(FileNotFoundError("model.bin"))


@pytest.mark.parametrize("kind", [Retryable, Unavailable, Indeterminate, Fenced])
def test_what_onceflow_itself_says_may_pass(kind: type[Exception]) -> None:
    assert fingerprints(kind("x")) == frozenset()


def test_what_is_outside_and_can_not_be_used() -> None:
    assert is_unavailable(Unavailable("waited for 2 min"))
    assert is_unavailable(PermissionError(errno.EACCES, "permission denied"))
    assert not is_unavailable(Retryable("the leader has changed"))
    assert not is_unavailable(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert not is_unavailable(KeyError("x"))
