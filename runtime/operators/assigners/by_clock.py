"""Windows in processing time: the same windows, filled by the clock."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling

TimeWindow = Tumbling | Sliding | Session | Cumulative | WindowAssigner
"""Windows that are spans of time."""


@dataclass(frozen=True, slots=True)
class ByClock:
    """These windows by the clock of the machine: rows belong to the time at which they come."""

    window: TimeWindow

    @property
    def title(self) -> str:
        """What a plan says of these windows."""
        return f"{self.window.title} by the clock"


@explained
def processing_time(window: TimeWindow) -> ByClock:
    """Windows in processing time: processing_time(tumbling("10 s")).

    A row belongs to the time at which its operator gets it, and the clock says when a window fires; nothing
    is late, and no watermarks are needed. The same input gives other windows each time. Raises OptionError
    for windows that know no time.
    """
    if not isinstance(window, TimeWindow):
        raise OptionError(
            f"processing_time({window!r}): use tumbling(...), sliding(...), session(...), cumulative(...) "
            "or an object of a class derived from WindowAssigner"
        )
    return ByClock(window)
