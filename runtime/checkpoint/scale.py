"""Pure: how many slots a job has, and a request for another number of them."""

from __future__ import annotations

from onceflow.runtime.checkpoint.effects import Announce, Effect, Rescale, WarmSlots

WARM_MS_MAX = 20_000
"""How long the slots of the next attempt may take to come up before the attempt ends without them."""
_AT_ONCE = float("-inf")


class Scale:
    """The number of slots of the attempt that runs, or is opened next.

    When another one is asked for, the next attempt's slots come up beside those that run, as far as there is
    room. Then the running attempt gets a checkpoint at once, behind which its sources send nothing, so that
    the next attempt does no work again. When that is committed the attempt ends. If it fails before, its
    successor has the new number of slots all the same: it starts anew anyway.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._wanted = slots
        self._last_from_ms = _AT_ONCE
        """When the attempt may get its last checkpoint."""
        self._is_told = False
        """Whether the attempt's sources were told to send nothing more: then it has to end, even if that
        checkpoint is aborted and another request takes the first one back."""
        self.has_changed = False
        """Whether the attempt has another number of slots than the one before."""

    @property
    def is_to_change(self) -> bool:
        return self._is_told or self._wanted != self.slots

    @property
    def last_due_ms(self) -> float:
        """When the attempt's last checkpoint is due; infinity: the attempt goes on."""
        return self._last_from_ms if self.is_to_change else float("inf")

    def ends_attempt(self, now_ms: int) -> bool:
        """Whether the next checkpoint is the last one of the attempt. Called when it is triggered."""
        self._is_told = now_ms >= self.last_due_ms
        return self._is_told

    def request(self, slots: int, running: int | None, now_ms: int) -> list[Effect]:
        """Take a request; of several the last one counts. `running`: the attempt, if one runs."""
        is_known, self._wanted = slots == self._wanted, slots
        if running is None or is_known or self._is_told:
            return []
        is_back = slots == self.slots
        self._last_from_ms = _AT_ONCE if is_back else now_ms + WARM_MS_MAX
        return [WarmSlots(running, 0 if is_back else slots)]

    def on_warmed(self, slots: int) -> list[Effect]:
        """The wait for the next attempt's slots is over: so many are there, 0 if they won't be."""
        self._last_from_ms = _AT_ONCE
        return [Announce("slots_warmed", {"slots": slots})] if slots else []

    def begin(self) -> list[Effect]:
        """An attempt is opened: what is to be done and told, if it has another number of slots."""
        self._is_told, self._last_from_ms = False, _AT_ONCE
        before, self.slots = self.slots, self._wanted
        self.has_changed = self.slots != before
        if not self.has_changed:
            return []
        return [Announce("rescaled", {"slots": self.slots, "slots_before": before}), Rescale(self.slots)]
