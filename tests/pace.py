"""How slow this machine is at the moment: what a promise in seconds is multiplied by in a test.

A promise as "new output within six seconds" is made for a machine that is not overloaded. A test that held
it by the wall clock alone would fail where each process has a tenth of a core, and would have found nothing.
So the same test measures what a piece of work takes there and then, and holds the ratio.
"""

from __future__ import annotations

import time

_ADDITIONS = 3_000_000
_USUAL_S = 0.25
"""What so many additions take on one core of the slowest machine that is still taken for a usual one."""


def slowness() -> float:
    """How many times longer than usual work takes at the moment, by the wall clock; 1 at least."""
    began = time.monotonic()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    return max(1.0, (time.monotonic() - began) / _USUAL_S)
