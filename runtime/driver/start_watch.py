"""StartWatch: what a job that does not run yet is waiting for, in a sentence for people."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.hosts.launch import SlotLauncher
from onceflow.runtime.slot.group import SlotGroup

OPENING = "the checkpoint log is read, and the sources are asked for their splits"
SAY_SINCE_AFTER_S = 2.0
"""From then on it is also said for how long that has been so."""


class StartWatch:
    """Asked by the driver at each report, on the driver's thread."""

    def __init__(
        self, enumerators: Enumerators, launcher: SlotLauncher, parallelism: int, now_ms: float
    ) -> None:
        self._enumerators = enumerators
        self._launcher = launcher
        self.parallelism = parallelism
        self._since = (JobPhase.OPENING, now_ms)

    def waiting(self, phase: JobPhase, group: SlotGroup | None, now_ms: float) -> Sequence[str]:
        """What is waited for in this phase, one sentence at most. `group`: the slots of the attempt, if there
        is one."""
        if phase is not self._since[0]:
            self._since = (phase, now_ms)
        seconds = (now_ms - self._since[1]) / 1000
        missing = self._missing(phase, group, now_ms)
        if missing is None:
            return ()
        return (missing if seconds < SAY_SINCE_AFTER_S else f"{missing}, since {seconds:.0f} s",)

    def _missing(self, phase: JobPhase, group: SlotGroup | None, now_ms: float) -> str | None:
        if phase is JobPhase.OPENING:
            return self._enumerators.waiting_for() or OPENING
        if phase is not JobPhase.STARTING or group is None or group.first_record_ms is not None:
            return None
        said = None if group.slots else group.host_wait(now_ms)
        return said or self._launcher.doing(self.parallelism, bool(group.slots))
