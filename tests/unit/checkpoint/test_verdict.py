"""Fatal or another attempt: the rule as the coordinator applies it, and what each wrong version of it does.

A simulated broker is never a wrong address, and a simulated program has no mistake, so the simulation does
not reach these failures: here they are events of the coordinator, with the fingerprints of real errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint import fingerprints
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.restart import FixedDelay
from onceflow.runtime.checkpoint.verdict import Failure, FailureRow, GiveUp, Restart
from onceflow.runtime.errors import Retryable, Unavailable
from onceflow.runtime.operators.stateless import call_each
from onceflow.runtime.records import Origin, Records
from onceflow.runtime.slot.failure import failure
from onceflow.runtime.testing.coordination import Coordination
from onceflow.runtime.testing.mutation import Mutant, mutated

FAILURES_MAX = 6


def attempts(errors: Iterator[Exception], completes: bool = False) -> int:
    """How many attempts a job makes whose slots fail with these errors, one after another."""
    job = Coordination(restart=FixedDelay(10, failures_max=FAILURES_MAX))
    for attempt, error in enumerate(errors, 1):
        restored = job.coordinator.last_completed_id or 0
        job.running(attempt, restored)
        if completes:
            job.at(job.now_ms + 200).completed(restored + 1, attempt)
        said = failure(attempt, error)
        job.on(
            ev.AttemptFailed(
                attempt,
                said.reason,
                said.is_fatal,
                is_unavailable=said.is_unavailable,
                fingerprints=frozenset(said.fingerprints),
            )
        )
        if finished := job.found(ev.FinishJob):
            assert finished[0].outcome is Outcome.FAILED
            return attempt
        job.at(int(job.coordinator.wake_at_ms))
    raise AssertionError("it would go on for ever")


def in_function(*raised: Exception) -> Iterator[Exception]:
    """What the job fails with when the user's function raises these, each on the next record."""
    for offset, error in enumerate([*raised] * FAILURES_MAX * 2):
        origin = Origin(("in-1",), np.zeros(1, np.uint16), np.array([offset], np.int64))

        def fn(_: object, error: Exception = error) -> object:
            raise error

        try:
            call_each("score", fn, [object()], Records(pa.record_batch({"x": [1]}), None, None, origin))
        except Exception as failed:
            yield failed


def check_outage_before_work() -> None:
    assert attempts(Unavailable("no broker at x:1") for _ in range(20)) == 1


def check_outage_after_work() -> None:
    assert attempts((Unavailable("away") for _ in range(20)), completes=True) == FAILURES_MAX + 1


def check_same_failure() -> None:
    assert attempts(in_function(ValueError("no luck"))) == 2


def check_messages_that_differ_by_numbers() -> None:
    """On different records: whichever of the bad ones comes first, another attempt meets one."""
    assert attempts(in_function(ValueError("amount -3 is below 0"), ValueError("amount -17 is below 0"))) == 2


def check_retryable() -> None:
    """A passing outage: the same sentence each time, on the same record or another."""
    assert attempts(Retryable("the leader has moved") for _ in range(20)) == FAILURES_MAX + 1
    assert attempts(in_function(Retryable("the service is busy"))) == FAILURES_MAX + 1


def check_system_errors() -> None:
    """A service that is away raises them, and the function may wrap them in its own."""
    wrapped = RuntimeError("no answer")
    wrapped.__cause__ = TimeoutError("timed out")
    for error in (TimeoutError("timed out"), ConnectionResetError("reset"), wrapped):
        assert attempts(in_function(error)) == FAILURES_MAX + 1


CHECKS: dict[str, Callable[[], None]] = {
    "outage before anything worked": check_outage_before_work,
    "outage after something worked": check_outage_after_work,
    "the same failure": check_same_failure,
    "messages that differ by numbers": check_messages_that_differ_by_numbers,
    "what may pass": check_retryable,
    "what the system says": check_system_errors,
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS.keys())
def test_a_job_makes_as_many_attempts_as_can_help(check: Callable[[], None]) -> None:
    check()


# --- Mutants ------------------------------------------------------------------------------------------


def _has_always_worked(self: FailureRow, failed: Failure, now_ms: int) -> Restart | GiveUp:
    self._has_worked = True
    return _judge(self, failed, now_ms)


def _has_never_worked(self: FailureRow) -> None:
    pass


def _forgets_what_was(self: FailureRow, failed: Failure, now_ms: int) -> Restart | GiveUp:
    self._seen.clear()
    return _judge(self, failed, now_ms)


def _by_its_reason(self: FailureRow, failed: Failure, now_ms: int) -> Restart | GiveUp:
    """A failure without fingerprints may not pass either."""
    return _judge(
        self,
        Failure(
            failed.reason, failed.is_fatal, failed.is_unavailable, failed.fingerprints or {failed.reason}
        ),
        now_ms,
    )


def _judges_nothing(self: FailureRow, failed: Failure, now_ms: int) -> Restart | GiveUp:
    """The coordinator asks the restart strategy only."""
    self._failures += 1
    delay_ms = self._restart.delay_ms(self._failures)
    return GiveUp(failed.reason) if delay_ms is None else Restart(delay_ms, self._failures)


def _nothing_passes(error: BaseException) -> bool:
    return False


_judge = FailureRow.judge

MUTANTS: dict[str, tuple[Mutant, set[str]]] = {
    mutant.title: (mutant, killers)
    for mutant, killers in (
        (
            Mutant("never has worked is forgotten", [(FailureRow, "judge", _has_always_worked)]),
            {"outage before anything worked"},
        ),
        (
            Mutant("has worked is forgotten", [(FailureRow, "_note_work", _has_never_worked)]),
            {"outage after something worked"},
        ),
        (
            Mutant("the same failure twice is retried", [(FailureRow, "judge", _forgets_what_was)]),
            {"the same failure", "messages that differ by numbers"},
        ),
        (
            Mutant("a Retryable is taken for deterministic", [(FailureRow, "judge", _by_its_reason)]),
            {"outage after something worked", "what may pass"},
        ),
        (
            Mutant("what the system says is his error", [(fingerprints, "_may_pass", _nothing_passes)]),
            {"what the system says"},
        ),
        (
            Mutant("the strategy alone decides", [(FailureRow, "judge", _judges_nothing)]),
            {"outage before anything worked", "the same failure", "messages that differ by numbers"},
        ),
    )
}


def killers_of(mutant: Mutant) -> set[str]:
    found = set()
    with mutated(mutant):
        for name, check in CHECKS.items():
            try:
                check()
            except AssertionError:
                found.add(name)
    return found


@pytest.mark.parametrize(("mutant", "killers"), MUTANTS.values(), ids=MUTANTS.keys())
def test_mutant_is_killed_by_the_checks_that_know_its_rule(mutant: Any, killers: set[str]) -> None:
    assert killers_of(mutant) == killers
