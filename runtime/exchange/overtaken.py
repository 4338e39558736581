"""Overtaken: the rows before one barrier that a gate has not given on when its task takes the barrier. Pure.

What has come and lies before the barrier is taken at once. On a channel where the barrier has not come, all
that is read until it has is before it, and is taken too (the channel states of Chandy and Lamport, 1985).
Watermarks are left out: they come again, and none comes too late. What ends and goes idle says so again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onceflow.runtime.records import Barrier, Element, Records


class Overtaken:
    """The rows that the barrier of one checkpoint overtakes at one gate."""

    def __init__(self, checkpoint_id: int, channels: int, open_channels: Iterable[int]) -> None:
        """`open_channels`: those whose barrier has not been read."""
        self.checkpoint_id = checkpoint_id
        self.by_channel: Sequence[list[Records]] = [[] for _ in range(channels)]
        self._open = set(open_channels)

    @property
    def open_channels(self) -> frozenset[int]:
        """The channels whose barrier has not come yet, as far as was looked."""
        return frozenset(self._open)

    @property
    def is_whole(self) -> bool:
        return not self._open

    def keep(self, channel: int, records: Records) -> None:
        """Rows that were read and not given on yet. Before anything else of the channel."""
        self.by_channel[channel].append(records)

    def take(self, channel: int, element: Element) -> None:
        """An element that is read now: rows before the barrier, or the barrier, or what is behind it."""
        if channel not in self._open:
            return
        match element:
            case Records():
                self.by_channel[channel].append(element)
            case Barrier(checkpoint_id) if checkpoint_id == self.checkpoint_id:
                self._open.discard(channel)

    def take_all(self, channel: int, waiting: Iterable[Element]) -> None:
        """The barrier has come: all that waits before it."""
        for element in waiting:
            self.take(channel, element)
