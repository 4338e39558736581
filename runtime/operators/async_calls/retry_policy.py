"""RetryPolicy: whether a call that failed is made again, and after how long. Decided by tenacity's
strategies, with the time of our clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tenacity

from onceflow.runtime.errors import OnceflowError, Retryable

WAIT = tenacity.wait_exponential(multiplier=0.1, max=10.0) + tenacity.wait_random(0.0, 0.1)
"""The pauses where the user names none: 0.1 s, 0.2 s, 0.4 s, ... 10 s, each a little longer."""


@dataclass(frozen=True)
class RetryPolicy:
    """The strategies of a tenacity.Retrying, which decide; the object itself can't travel to the slots."""

    retry: Any
    stop: Any
    wait: Any

    @classmethod
    def of(cls, retrying: tenacity.BaseRetrying) -> RetryPolicy:
        return cls(retrying.retry, retrying.stop, retrying.wait)

    @classmethod
    def times(cls, count: int) -> RetryPolicy:
        """The policy of so many more attempts after one that has raised, whatever that was."""
        return cls(tenacity.retry_if_exception_type(Exception), tenacity.stop_after_attempt(count + 1), WAIT)

    def pause_ms(
        self, attempt: int, began_ms: float, now_ms: float, result: Any, error: Exception | None
    ) -> float | None:
        """The pause before the next attempt, if this one, the n-th since the call began, is not its end. What
        onceflow itself raises, but a Retryable, fails in the same way each time."""
        if isinstance(error, OnceflowError) and not isinstance(error, Retryable):
            return None
        state = tenacity.RetryCallState(_NOBODY, None, (), {})
        state.attempt_number, state.start_time = attempt, began_ms / 1_000
        if error is None:
            state.set_result(result)
        else:
            state.set_exception((type(error), error, error.__traceback__))
        state.outcome_timestamp = now_ms / 1_000
        if not self.retry(state):
            return None
        state.upcoming_sleep = pause_s = float(self.wait(state))
        return None if self.stop(state) else 1_000 * pause_s


_NOBODY: Any = None
"""In the place of the Retrying: no strategy looks at it."""
