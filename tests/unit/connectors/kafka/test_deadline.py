"""A call that never returns is left behind; what a call says in time is passed on."""

from __future__ import annotations

import threading

import pytest

from onceflow.connectors.kafka.deadline import OverdueError, call_with_deadline

DEADLINE_S = 10.0


def test_a_result_and_an_error_are_passed_on() -> None:
    assert call_with_deadline(lambda: 7, DEADLINE_S, "seven") == 7
    with pytest.raises(ZeroDivisionError):
        call_with_deadline(lambda: 1 // 0, DEADLINE_S, "division")


def test_a_timeout_of_the_call_itself_is_not_ours() -> None:
    def refuse() -> None:
        raise TimeoutError("the call's own")

    with pytest.raises(TimeoutError, match="the call's own") as caught:
        call_with_deadline(refuse, DEADLINE_S, "refusal")
    assert not isinstance(caught.value, OverdueError)


def test_a_call_that_never_returns_is_left_behind() -> None:
    never = threading.Event()
    with pytest.raises(OverdueError, match="stuck has not returned"):
        call_with_deadline(never.wait, 0.05, "stuck")
    never.set()
