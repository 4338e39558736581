"""A call that never returns is left behind; what a call says in time is passed on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from onceflow.connectors.kafka.librdkafka.deadline import CallsWithDeadline, OverdueError

DEADLINE_S = 60.0


@pytest.fixture
def calls() -> Iterator[CallsWithDeadline]:
    made = CallsWithDeadline("test-calls")
    yield made
    made.close()


def test_a_result_and_an_error_are_passed_on(calls: CallsWithDeadline) -> None:
    assert calls.call(lambda: 7, DEADLINE_S, "seven") == 7
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 // 0, DEADLINE_S, "division")
    assert calls.call(lambda: 8, DEADLINE_S, "eight") == 8


def test_calls_that_return_share_a_thread_which_is_not_the_callers(calls: CallsWithDeadline) -> None:
    threads = {calls.call(threading.current_thread, DEADLINE_S, "asking") for _ in range(3)}
    assert len(threads) == 1
    assert threads != {threading.current_thread()}


def test_a_timeout_of_the_call_itself_is_not_ours(calls: CallsWithDeadline) -> None:
    def refuse() -> None:
        raise TimeoutError("the call's own")

    with pytest.raises(TimeoutError, match="the call's own") as caught:
        calls.call(refuse, DEADLINE_S, "refusal")
    assert not isinstance(caught.value, OverdueError)


def test_a_call_that_never_returns_is_left_behind_and_holds_up_no_other(calls: CallsWithDeadline) -> None:
    never = threading.Event()
    with pytest.raises(OverdueError, match="stuck has not returned"):
        calls.call(never.wait, 0.05, "stuck")
    assert calls.call(lambda: 7, DEADLINE_S, "seven") == 7
    never.set()


def test_a_call_under_which_a_connection_broke_is_overdue_sooner() -> None:
    never, asked = threading.Event(), threading.Event()
    calls = CallsWithDeadline("test-calls", after_cut_s=0.05)

    def is_cut() -> bool:
        asked.set()
        return True

    with pytest.raises(OverdueError, match="stuck has not returned within 0 s after a connection broke"):
        calls.call(never.wait, DEADLINE_S, "stuck", is_cut)
    assert asked.is_set()
    assert calls.call(lambda: 7, DEADLINE_S, "seven", is_cut) == 7
    never.set()
    calls.close()


def test_a_call_that_returns_soon_after_a_cut_is_passed_on(calls: CallsWithDeadline) -> None:
    asked = threading.Event()

    def is_cut() -> bool:
        asked.set()
        return True

    def answered_after_the_cut() -> int:
        assert asked.wait(DEADLINE_S)
        return 7

    assert calls.call(answered_after_the_cut, DEADLINE_S, "seven", is_cut) == 7


def test_threads_end_when_they_are_done(calls: CallsWithDeadline) -> None:
    never = threading.Event()
    stuck: list[threading.Thread] = []

    def hang() -> None:
        stuck.append(threading.current_thread())
        never.wait()

    with pytest.raises(OverdueError):
        calls.call(hang, 0.05, "stuck")
    fresh = calls.call(threading.current_thread, DEADLINE_S, "asking")
    never.set()
    calls.close()
    for thread in (*stuck, fresh):
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def test_a_call_to_a_broker_that_is_mute_for_now_has_its_time_from_then_on(calls: CallsWithDeadline) -> None:
    """It may be told only while the call is under way."""
    late, told = threading.Event(), [0.0]

    def is_cut() -> bool:  # asked now and then, which takes note of what the broker has said
        told[0] = told[0] or time.monotonic() + 0.5
        return False

    threading.Timer(0.3, late.set).start()
    assert calls.call(lambda: late.wait(DEADLINE_S), 0.15, "mute", is_cut, lambda: told[0])
    never = threading.Event()
    with pytest.raises(OverdueError, match="stuck has not returned within"):
        calls.call(never.wait, 0.05, "stuck", not_before_s=lambda: told[0])
    assert time.monotonic() >= told[0]
    never.set()
