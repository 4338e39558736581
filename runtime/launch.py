"""How slots come to life: what the driver asks of its host (Spark, or this process)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from onceflow.runtime.slot_process import SlotLaunch


class SlotLauncher(Protocol):
    """Starts the slots of one attempt after another. The driver's thread calls it."""

    @property
    def slots_max(self) -> int:
        """How many slots the host can run at once now; the default parallelism."""
        ...

    @property
    def driver_host(self) -> str:
        """An address of this machine that the slots can reach: where the control server listens."""
        ...

    def launch(self, launch: SlotLaunch, parallelism: int, on_ended: Callable[[str | None], None]) -> None:
        """Start `parallelism` slots, each calling `run_slot`, and return.

        `on_ended` is called once, on any thread, when the host knows that all of them are over: with
        None, or with the reason why the host ended them.
        """
        ...

    def cancel(self) -> None:
        """End what is left of the last attempt, soon; it may overlap with the next one for seconds."""
        ...

    def close(self) -> None: ...
