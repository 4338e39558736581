"""Pure: how many slots a job has, and a request for another number of them."""

from __future__ import annotations

from onceflow.runtime.checkpoint.effects import Announce, Effect, Rescale


class Scale:
    """The number of slots of the attempt that runs, or is opened next.

    When another one is asked for, the running attempt gets a checkpoint at once, behind which its sources
    send nothing, so that the next attempt does no work again. When that is committed the attempt ends. If it
    fails before, its successor has the new number of slots all the same: it starts anew anyway.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._wanted = slots
        self._is_told = False
        """Whether the attempt's sources were told to send nothing more: then it has to end, even if that
        checkpoint is aborted and another request takes the first one back."""

    def ends_attempt(self) -> bool:
        """Whether the next checkpoint is the last one of the attempt. Called when it is triggered."""
        self._is_told = self.is_to_change
        return self._is_told

    @property
    def is_to_change(self) -> bool:
        return self._is_told or self._wanted != self.slots

    def request(self, slots: int) -> None:
        """Take a request; of several the last one counts."""
        self._wanted = slots

    def begin(self) -> list[Effect]:
        """An attempt is opened: what is to be done and told, if it has another number of slots."""
        self._is_told = False
        if not self.is_to_change:
            return []
        before, self.slots = self.slots, self._wanted
        return [Announce("rescaled", {"slots": self.slots, "slots_before": before}), Rescale(self.slots)]
