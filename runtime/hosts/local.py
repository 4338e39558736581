"""LocalLauncher: every slot in this process, on a thread of its own. No Spark, no JVM.

For tests, small jobs and notebooks: the driver, the slots and what they say to each other are the same
as on Spark; only placement and isolation differ. User code shares the interpreter (and its lock).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.hosts.launch import RESTORING, compiling
from onceflow.runtime.slot.process import SlotLaunch, run_slot

END_TIMEOUT_MS = 1_500.0


class LocalLauncher:
    """Slots as threads."""

    def __init__(self, slots_max: int = 1) -> None:
        self._slots_max = slots_max
        self._compiling = compiling()
        self._threads: list[threading.Thread] = []

    def wait_ready(self, timeout_s: float) -> bool:
        return True

    def coming_up(self) -> str:
        return "nothing"

    @property
    def slots_max(self) -> int:
        return self._slots_max

    def check_room(self, slots: int) -> None:
        """Threads have no limit of their own."""

    def has_room(self, slots: int) -> bool:
        return True

    @property
    def driver_host(self) -> str:
        return "127.0.0.1"

    @property
    def listen_host(self) -> str:
        return "127.0.0.1"

    @property
    def encryption_asked_by(self) -> str | None:
        return None

    def doing(self, parallelism: int, has_slots: bool) -> str:
        return (RESTORING if has_slots else f"{parallelism} slots start on threads") + self._compiling

    def launch(
        self,
        launch: SlotLaunch,
        parallelism: int,
        on_ended: Callable[[OnceflowError | None], None],
        on_waiting: Callable[[str], None],
    ) -> Callable[[], None]:
        remaining = threading.Semaphore(parallelism - 1)

        def run(number: int) -> None:
            try:
                run_slot(launch, number, "127.0.0.1", end_process=None)
            finally:
                if not remaining.acquire(blocking=False):
                    on_ended(None)

        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for number in range(parallelism):
            name = f"onceflow-slot-{number}"
            self._threads.append(threading.Thread(target=run, args=(number,), name=name, daemon=True))
            self._threads[-1].start()
        return lambda: None  # they end when the driver tells them to

    def close(self) -> None:
        """Let the slots close what they have opened; one that hangs is left behind."""
        clock = SystemClock()
        deadline_ms = clock.monotonic_ms() + END_TIMEOUT_MS
        for thread in self._threads:
            thread.join(max(0.0, deadline_ms - clock.monotonic_ms()) / 1000)
