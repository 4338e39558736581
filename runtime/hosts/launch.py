"""How slots come to life: what the driver asks of its host (Spark, or this process)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.kernels.preparation import are_prepared
from onceflow.runtime.slot.process import SlotLaunch

RESTORING = "the slots restore state, open functions and connect"
"""What slots do between their arrival and their first record."""
COMPILING = " (compiling kernels, about a minute once per machine; `onceflow prepare` does it ahead)"


def compiling() -> str:
    """What to say of kernels that this machine has not compiled yet; nothing if it has them."""
    return "" if are_prepared() else COMPILING


class SlotLauncher(Protocol):
    """Starts the slots of one attempt after another, and those of the next one ahead. The driver's thread
    calls it, and none of its calls waits for the host but `wait_ready` and `close`."""

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait so long at most. True: `slots_max`, the two addresses and `encryption_asked_by` are known from
        now on.

        Raises OnceflowError if the host can't come up.
        """
        ...

    def coming_up(self) -> str:
        """What `wait_ready` waits for, for people. Never waits."""
        ...

    @property
    def slots_max(self) -> int:
        """How many slots the host can run at once now; the default parallelism."""
        ...

    def check_room(self, slots: int) -> None:
        """Raises OptionError if the host can never run so many slots at once. Called while it runs."""
        ...

    def has_room(self, slots: int) -> bool:
        """Whether the host could run so many slots at once now, all that run and wait included."""
        ...

    @property
    def driver_host(self) -> str:
        """The address at which the slots reach the control server on this machine."""
        ...

    @property
    def listen_host(self) -> str:
        """The address of this machine at which the control server listens: `driver_host`, unless what the
        slots connect to leads here by way of another machine."""
        ...

    @property
    def encryption_asked_by(self) -> str | None:
        """The host's own setting that asks for encrypted traffic between its processes, by name; None: none
        does. It holds for what driver and slots say to each other, too."""
        ...

    def doing(self, parallelism: int, has_slots: bool) -> str:
        """What is going on until the slots of an attempt run, for people. `has_slots`: all have said that
        they are there. Never waits."""
        ...

    def launch(
        self,
        launch: SlotLaunch,
        parallelism: int,
        on_ended: Callable[[OnceflowError | None], None],
        on_waiting: Callable[[str], None],
    ) -> Callable[[], None]:
        """Start `parallelism` slots, each calling `run_slot`, and return; the host may still be coming up.

        `on_ended` is called once, on any thread, when the host knows that all of them are over: with
        None, or with why the host ended them or could not start them. `on_waiting` is called once a second,
        on any thread, while the host has not room for all of them yet, with what it waits for.

        Returns what ends what is left of them, soon: it may overlap with the next launch for seconds.
        """
        ...

    def close(self) -> None:
        """End the host, also while it is still coming up."""
        ...
