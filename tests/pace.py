"""How slow this machine is at the moment: what a promise in seconds is multiplied by in a test.

A promise as "new output within six seconds" is made for a machine that is not overloaded. A test that held
it by the wall clock alone would fail where each process has a tenth of a core, and would have found nothing.
So the same test measures what a piece of work takes there and then, and holds the ratio.

The piece of work is measured when the wait is over, and the processes that made it long may have ended by
then. Hence the load of the last minute, for each core, counts as well.
"""

from __future__ import annotations

import os
import time

_ADDITIONS = 3_000_000
_USUAL_S = 0.25
"""What so many additions take on one core of the slowest machine that is still taken for a usual one."""


def slowness() -> float:
    """How many times longer than usual work takes at the moment, by the clock and the load; 1 at least."""
    began = time.monotonic()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    work = (time.monotonic() - began) / _USUAL_S
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return max(1.0, work) * max(1.0, waiting)
