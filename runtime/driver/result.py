"""JobResult: how a run of a job ended."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.control.messages import Ended


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a run ended. `late_records` are over all attempts of this run."""

    outcome: Outcome
    """How the run ended: finished, stopped, cancelled or failed."""
    reason: str
    """Why it ended, in a sentence."""
    last_checkpoint_id: int | None
    """The latest completed checkpoint; None: there is none."""
    late_records: int = 0
    detail: str = ""
    """The traceback of what failed a slot, for --debug."""
    cause: str = ""
    """The name of the class of the error that failed the job, where it was one."""
    is_refused: bool = False
    """The checkpoint folder does not fit the program, or the options: nothing was started."""

    def told(self) -> Ended:
        """What those are told who have asked for a stop."""
        return Ended(self.outcome.value, self.reason, self.last_checkpoint_id)
