"""WarmSlots: the slots of the next attempt, which wait for it while the running one goes on. Pure.

They have their processes, have read the program, and have said hello; what they start from comes when their
attempt is opened (ADR 179).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.control.messages import Failed, Hello, ToDriver
from onceflow.runtime.slot.group import SlotGroup


class LaunchedSlots(NamedTuple):
    """A group that the host has been asked for, and what ends it at the host (see SlotLauncher.launch)."""

    group: SlotGroup
    cancel: Callable[[], None]


class WarmSlots:
    """Knows one group at a time, or none. The driver's thread calls it."""

    def __init__(self) -> None:
        self._launched: LaunchedSlots | None = None

    @property
    def _group(self) -> SlotGroup | None:
        return None if self._launched is None else self._launched.group

    def expect(self, launched: LaunchedSlots) -> None:
        """Wait for these slots; those of before are not wanted any more."""
        self.end("another number of slots is wanted")
        self._launched = launched

    def is_from_them(self, message: ToDriver) -> bool:
        """Whether a slot of the next attempt says it, and not one of the attempt that runs."""
        group = self._group
        return group is not None and isinstance(message, Hello | Failed) and message.attempt == group.attempt

    def on_message(self, peer: int, message: ToDriver, now_ms: float) -> list[ev.Event]:
        """What `is_from_them`. SlotsWarmed, if this is the last hello, or they give up."""
        group = self._group
        assert group is not None, "is_from_them comes first"
        if group.on_message(peer, message, now_ms):
            return self._give_up()
        return [ev.SlotsWarmed(group.attempt - 1, group.parallelism)] if group.are_there else []

    def on_lost(self, peer: int) -> list[ev.Event]:
        """A connection has ended. SlotsWarmed, if it was one of theirs."""
        group = self._group
        return self._give_up() if group is not None and group.on_lost(peer) else []

    def on_host_ended(self, group: SlotGroup) -> list[ev.Event]:
        """The host says that all slots of a group are over. SlotsWarmed, if it is this one."""
        return self._give_up() if group is self._group else []

    def take(self, attempt: int, slots: int) -> LaunchedSlots | None:
        """The attempt is opened: its slots, if they are expected. Others are not wanted any more."""
        launched, group = self._launched, self._group
        if group is not None and (group.attempt, group.parallelism) == (attempt, slots):
            self._launched = None
            return launched
        self.end(f"attempt {attempt} begins without them")
        return None

    def end(self, reason: str) -> None:
        """Nobody wants them any more."""
        if self._launched is not None:
            self._launched.group.end(reason)
            self._launched.cancel()
            self._launched = None

    def _give_up(self) -> list[ev.Event]:
        group = self._group
        assert group is not None
        self.end("one of them is gone")
        return [ev.SlotsWarmed(group.attempt - 1, 0)]
