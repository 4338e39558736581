"""Watermark alignment: which splits wait for those that are behind them. Pure.

The splits of all sources of a group are to be at about the same event time, so that what waits behind them
for the slowest (a join's rows, open windows) stays small. Each slot says how far the slowest of its splits
is, the driver has the lowest of all, and a split that is more than `max_drift_ms` ahead of that is left
unread until the others have come nearer (Flink calls it watermark alignment, FLIP-182 and FLIP-217).

What a slot knows of the others is old, and watermarks only go forward: so it is too low, if anything, and a
split waits a little longer than it has to. It can be too high only where a split begins to count again that
was idle, or is new; then the others run on for a moment. No result depends on any of this: event time goes by
what was read, whoever was paused meanwhile, and nothing of it is in a checkpoint.

There is no deadlock. The slowest split that counts is at the lowest watermark itself, so it is never paused;
and whatever else has an end (it finishes, it is idle) does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from onceflow.runtime.contracts.watermarks import WatermarkAlignment
from onceflow.runtime.records import WATERMARK_MIN_MS

Lowest = Mapping[str, int | None]
"""The lowest watermark of each group, in ms; None: nobody in it counts."""

SHOWN_MAX = 3
"""How many splits are named for people, of those that wait."""


class Turn(NamedTuple):
    """What is to be done with some splits."""

    pause: frozenset[str]
    resume: frozenset[str]


class AlignedSplits:
    """Which splits of one source's subtask are paused."""

    def __init__(self, alignment: WatermarkAlignment) -> None:
        self.group = alignment.group
        self.lowest_ms: int | None = WATERMARK_MIN_MS
        """The lowest of the whole group, as far as is known. At first nothing is, and nobody runs ahead."""
        self.paused: frozenset[str] = frozenset()
        self._max_drift_ms = alignment.max_drift_ms

    def turn(self, watermarks: Mapping[str, int]) -> Turn:
        """Who has to wait now, and who may go on. `watermarks`: of each split that is read, in ms; those that
        are idle or have finished are not there. Called before each poll; what it says has to be done.

        A paused split goes on when the others have come to half of the drift: one that went on at its limit
        would have to wait again after its next record.
        """
        lowest_ms = lowest([self.lowest_ms, *watermarks.values()])
        if lowest_ms is None:
            paused: frozenset[str] = frozenset()
        else:
            far_ms, near_ms = lowest_ms + self._max_drift_ms, lowest_ms + self._max_drift_ms // 2
            paused = frozenset(
                split
                for split, watermark_ms in watermarks.items()
                if watermark_ms > (near_ms if split in self.paused else far_ms)
            )
        turn = Turn(paused - self.paused, self.paused - paused)
        self.paused = paused
        return turn

    def describe(self, uid: str) -> str:
        """Which splits of this source wait, for people. "": none."""
        if not self.paused:
            return ""
        names = sorted(self.paused)
        more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
        return (
            f"source {uid!r}: {', '.join(names[:SHOWN_MAX])}{more} paused: more than "
            f"{self._max_drift_ms / 1000:g} s ahead of the slowest split of watermark alignment group "
            f"{self.group!r}"
        )


class SlotReports:
    """When a slot tells the driver how far its splits are: when that has changed, and not too often."""

    def __init__(self, pause_ms: float) -> None:
        """`pause_ms`: between two reports, at least."""
        self._pause_ms = pause_ms
        self._said: tuple[Lowest, bool] | None = None
        self._said_at_ms = -pause_ms

    def is_due(self, lowest_of: Lowest, has_paused: bool, now_ms: float) -> bool:
        """Whether this is to be told now; it counts as told then."""
        if self._said == (lowest_of, has_paused) or now_ms - self._said_at_ms < self._pause_ms:
            return False
        self._said, self._said_at_ms = (lowest_of, has_paused), now_ms
        return True


class GroupsOfAttempt:
    """How far all slots of one attempt are; kept in the driver.

    A slot hears what holds for all as the answer to its own report; one with paused splits has nothing to
    report, and hears of every change.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._said: dict[int, Lowest] = {}
        self._told: dict[int, Lowest] = {}
        self._waiting: set[int] = set()

    def report(self, slot: int, lowest_of: Lowest, has_paused: bool) -> list[int]:
        """A slot says how far it is. Returns the slots that are to be told `lowest`."""
        self._said[slot] = lowest_of
        (self._waiting.add if has_paused else self._waiting.discard)(slot)
        now = self.lowest
        untold = [each for each in sorted({slot, *self._waiting}) if self._told.get(each) != now]
        self._told.update(dict.fromkeys(untold, now))
        return untold

    @property
    def lowest(self) -> Lowest:
        """What all slots have come to. Until each has said something, that is nothing."""
        groups = {group for said in self._said.values() for group in said}
        if len(self._said) < self._slots:
            return dict.fromkeys(groups, WATERMARK_MIN_MS)
        return {group: lowest([said.get(group) for said in self._said.values()]) for group in groups}


def lowest(watermarks: list[int | None]) -> int | None:
    """The lowest of those that count; None: none does."""
    return min((each for each in watermarks if each is not None), default=None)
