"""What runs in an executor: one slot in each task of the barrier stage."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from pyspark import BarrierTaskContext

from onceflow.runtime.errors import Fatal
from onceflow.runtime.slot_process import SlotLaunch, run_slot
from onceflow.runtime.version import VERSION

GIL_S = 0.001
"""How long a thread of a slot may keep Python to itself while others wait for it; Python's own is 5 ms. A
transaction takes the interpreter some forty times, each time against a slot's thread that is busy: with
1 ms it took 122 ms instead of 157 ms next to a thread that never rests."""


class SlotFunction:
    """The function that Spark ships to each task: picklable, and what it holds is the whole job."""

    def __init__(self, launch: SlotLaunch) -> None:
        self._launch = launch
        self._version = VERSION

    def __call__(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Run one slot until the driver ends the attempt. Yields nothing."""
        if self._version != VERSION:
            raise Fatal(
                f"the driver runs onceflow {self._version}, this executor {VERSION}: "
                "install the same version on both"
            )
        sys.setswitchinterval(GIL_S)
        context = BarrierTaskContext.get()
        partition = context.partitionId()
        host = context.getTaskInfos()[partition].address.rsplit(":", 1)[0]
        run_slot(self._launch, partition, host, partial(os._exit, 1))
        return iter(())
