"""LocalLauncher: every slot in this process, on a thread of its own. No Spark, no JVM.

For tests, small jobs and notebooks: the driver, the slots and what they say to each other are the same
as on Spark; only placement and isolation differ. User code shares the interpreter (and its lock).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from onceflow.runtime.slot_process import SlotLaunch, run_slot


class LocalLauncher:
    """Slots as threads."""

    def __init__(self, slots_max: int = 1) -> None:
        self._slots_max = slots_max

    @property
    def slots_max(self) -> int:
        return self._slots_max

    @property
    def driver_host(self) -> str:
        return "127.0.0.1"

    def launch(self, launch: SlotLaunch, parallelism: int, on_ended: Callable[[str | None], None]) -> None:
        remaining = threading.Semaphore(parallelism - 1)

        def run(number: int) -> None:
            try:
                run_slot(launch, number, "127.0.0.1", on_lost=lambda: None)
            finally:
                if not remaining.acquire(blocking=False):
                    on_ended(None)

        for number in range(parallelism):
            threading.Thread(target=run, args=(number,), name=f"onceflow-slot-{number}", daemon=True).start()

    def cancel(self) -> None:
        """Slots end when the driver tells them to."""

    def close(self) -> None:
        pass
