"""Pure: a request to stop, and what may still be triggered until the job has ended."""

from __future__ import annotations

from onceflow.runtime.checkpoint.effects import Outcome

NEVER = float("inf")


class Stopping:
    """Whether, until when and how a job is to end.

    Plainly: a last checkpoint comes at once. Drained: first the sources end as if their input had, so that
    everything fires that waits for event time; then comes the last checkpoint. Between the two none may: its
    state would have fired what later records belong to, and an attempt that is restored from it would go on
    reading. For the same reason none comes while an attempt ends that was restored from a drained checkpoint.
    """

    def __init__(self) -> None:
        self.until_ms = NEVER
        """When the patience with a requested stop ends; NEVER: none was requested."""
        self.patience_ms = 0
        self._drains = False
        self._is_told = False
        self._restored_drained = False

    @property
    def is_requested(self) -> bool:
        return self.until_ms != NEVER

    @property
    def reason(self) -> str:
        """Why a job has finished."""
        if self._drains:
            return "drained on request: its sources ended, all has fired, and all output is committed"
        return "all input was read and all output committed"

    @staticmethod
    def without_an_attempt(has_read: bool) -> tuple[Outcome, str]:
        """How a job ends that is asked to stop while no attempt of it runs."""
        if has_read:
            return Outcome.CANCELLED, "without a last checkpoint: no attempt was running"
        return Outcome.STOPPED, "on request, before an attempt of this run was started"

    def request(self, drains: bool, patience_ms: int, now_ms: int) -> None:
        """Take a request; of several the first one counts."""
        if not self.is_requested:
            self.until_ms, self.patience_ms, self._drains = now_ms + patience_ms, patience_ms, drains

    def overdue(self) -> str:
        """Why the job ends without a last checkpoint, in words."""
        return f"no last checkpoint within {self.patience_ms} ms"

    def begin(self, is_drained: bool) -> None:
        """An attempt begins; `is_drained`: the checkpoint is, which it is restored from."""
        self._restored_drained = is_drained

    def take_drain(self) -> bool:
        """True, once: tell the sources to end. Called while no checkpoint is under way."""
        is_due = self.is_requested and self._drains and not self._is_told
        self._is_told = self._is_told or is_due
        return is_due

    def is_ending(self, all_drained: bool) -> bool:
        """Whether the last checkpoint is what is waited for."""
        return all_drained or (self.is_requested and not self.forbids_trigger(all_drained))

    def forbids_trigger(self, all_drained: bool) -> bool:
        """Whether a checkpoint would have state that has only partly been drained."""
        return (self._drains or self._restored_drained) and not all_drained
