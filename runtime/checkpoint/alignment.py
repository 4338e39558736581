"""Pure: which channels to block, when the barriers are aligned, and when one may overtake.

A task with several inputs snapshots when the barrier of a checkpoint has come on every channel. With
alignment a channel that has delivered it is left unread until the rest have (Carbone et al., 2015), so
that no record after the line gets into the state before it is frozen. Without alignment
(at-least-once) nothing is blocked and such records do get in.

A barrier that overtakes ends the alignment: the task snapshots before it has read what lies in front of the
barrier, and whoever lets it overtake keeps those rows with the snapshot (`exchange/overtaken.py`). So nothing
has to be blocked either. Channels on which nothing may be overtaken are waited for as before.

A channel that has ended goes on delivering barriers: a finished task stays and forwards them. So the
end of a channel needs no event here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onceflow.runtime.records import Barrier


@dataclass(frozen=True, slots=True)
class Decision:
    """What a barrier or an abort changes at the gate."""

    block: frozenset[int] = frozenset()
    """Don't read these until they are unblocked."""
    unblock: frozenset[int] = frozenset()
    """Read these again; any `snapshot` comes first."""
    snapshot: Barrier | None = None
    """Aligned: snapshot now, forward this barrier, then go on."""
    superseded: int | None = None
    """A checkpoint that was given up because a newer one's barrier came."""


class Alignment:
    """The barriers of one task's input channels. One checkpoint at a time; ids only grow."""

    def __init__(self, channels: int, is_aligned: bool = True, in_order: Collection[int] = ()) -> None:
        """`in_order`: the channels on which a barrier may overtake nothing."""
        assert channels >= 1, "a gate has at least one channel"
        self._channels = channels
        self._is_aligned = is_aligned
        self._in_order = frozenset(in_order)
        self._checkpoint_id: int | None = None
        self._delivered: set[int] = set()
        self._closed_id = -1
        """The highest checkpoint that is over for this task: snapshotted, superseded or aborted."""
        self.blocked: frozenset[int] = frozenset()
        """Channels to leave unread. Empty whenever no alignment is going on."""

    def __repr__(self) -> str:
        return (
            f"Alignment(checkpoint={self._checkpoint_id}, delivered={sorted(self._delivered)} "
            f"of {self._channels}, blocked={sorted(self.blocked)}, closed={self._closed_id})"
        )

    def on_barrier(self, channel: int, barrier: Barrier) -> Decision:
        """A barrier was read from this channel.

        One of a checkpoint that is over here is ignored (its abort came first, or a newer one). A
        newer one than the one being aligned gives that one up: the coordinator only goes on to the
        next checkpoint when the one before is complete or aborted.
        """
        assert 0 <= channel < self._channels, f"channel {channel} of {self._channels}"
        assert channel not in self.blocked, f"channel {channel} was read while it was blocked: {self!r}"
        n = barrier.checkpoint_id
        if n <= self._closed_id or (self._checkpoint_id is not None and n < self._checkpoint_id):
            return Decision()
        superseded, was_blocked = None, self.blocked
        if self._checkpoint_id is not None and n > self._checkpoint_id:
            superseded = self._checkpoint_id
            self._close(superseded)
        assert channel not in self._delivered, f"barrier {n} came twice on channel {channel}"
        self._checkpoint_id = n
        self._delivered.add(channel)
        if len(self._delivered) == self._channels:
            self._close(n)
            return Decision(unblock=was_blocked, snapshot=barrier, superseded=superseded)
        if self._is_aligned:
            self.blocked = frozenset(self._delivered)
        return Decision(self.blocked - was_blocked, was_blocked - self.blocked, None, superseded)

    def awaited(self, checkpoint_id: int) -> frozenset[int]:
        """The channels from which no barrier of this checkpoint was read."""
        delivered = self._delivered if checkpoint_id == self._checkpoint_id else set()
        return frozenset(range(self._channels)) - delivered

    def may_overtake(self, checkpoint_id: int, come: Collection[int]) -> bool:
        """Whether the barrier of this checkpoint may be taken now, though it was not read on all channels.
        `come`: those where it waits to be read."""
        is_older = self._checkpoint_id is not None and checkpoint_id < self._checkpoint_id
        if not self._is_aligned or is_older or checkpoint_id <= self._closed_id:
            return False
        awaited = self.awaited(checkpoint_id)
        return not self._in_order & awaited and (len(awaited) < self._channels or bool(come))

    def overtake(self, checkpoint_id: int) -> None:
        """It is taken: the task snapshots now. Barriers of it that are still to be read say nothing more."""
        assert self.may_overtake(checkpoint_id, range(self._channels)), f"{checkpoint_id}: {self!r}"
        self._close(checkpoint_id)

    def abort(self, checkpoint_id: int) -> Decision:
        """The coordinator gave this checkpoint up, and with it all before: barriers of it that are
        still on their way are ignored."""
        if checkpoint_id <= self._closed_id:
            return Decision()
        if self._checkpoint_id is None or self._checkpoint_id > checkpoint_id:
            self._closed_id = checkpoint_id
            return Decision()
        was_blocked = self.blocked
        self._close(checkpoint_id)
        return Decision(unblock=was_blocked)

    def _close(self, checkpoint_id: int) -> None:
        assert checkpoint_id > self._closed_id, (checkpoint_id, self._closed_id)
        self._closed_id = checkpoint_id
        self._checkpoint_id = None
        self._delivered = set()
        self.blocked = frozenset()
