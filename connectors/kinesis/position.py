"""ShardPosition: how far a shard was read; and when what follows may be gone. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError

_START_ANEW = "start the job anew, with another checkpoint folder"


@dataclass(frozen=True, slots=True)
class ShardPosition:
    """A shard and where to go on in it: the whole state of a split."""

    shard_id: str
    stream: str
    created_ms: int
    """When the stream was made: another one of this name has other records."""
    parents: tuple[str, ...] = ()
    """The shards that were split or merged into it."""
    first_hash: str = ""
    last_hash: str = ""
    """The hash keys that are the shard's, as decimal texts."""
    from_ms: int | None = None
    """What arrived before is not read. None: all that is there."""
    until_ms: int | None = None
    """What arrived after is not read. None: there is no end."""
    after: str | None = None
    """The sequence number of the last record that was read wholly. None: none was."""
    taken: int = 0
    """How many of the next record's parts were read (an aggregated record has several)."""
    complete_ms: int | None = None
    """All that had arrived by then was read, by the server's clock. None: nothing was read yet, and what is
    trimmed before is none of the job's."""
    count: int = 0
    """How many rows, and parts that were no rows, have been read."""
    lost_parent: str | None = None
    """A shard that had to be read before this one, and was gone when this one was found."""
    begins_ms: int | None = None
    """Nothing is read before the first record that arrived then or later, and all is that comes behind it.
    None: it has been read, or that does not matter."""

    def state(self) -> SplitState:
        """The split that the checkpoint has."""
        return SplitState(self.shard_id, asdict(self) | {"parents": list(self.parents)})

    @staticmethod
    def of(split: SplitState) -> ShardPosition:
        """The position that a checkpoint has."""
        fields: dict[str, Any] = {**split.position, "parents": tuple(split.position["parents"])}
        return ShardPosition(**fields)

    def skipped_to(self, now_ms: int) -> ShardPosition:
        """The same shard, from what arrives now on."""
        return replace(self, from_ms=now_ms, after=None, taken=0, complete_ms=now_ms)

    def begun_with(self, arrivals_ms: Iterable[int]) -> ShardPosition:
        """The same behind records that arrived then: all that follows is read once one was not too early."""
        begins_ms = self.begins_ms
        if begins_ms is None or all(at < begins_ms for at in arrivals_ms):
            return self
        return replace(self, begins_ms=None, from_ms=None)

    def may_have_lost(self, horizon_ms: int) -> bool:
        """Whether records that follow may have been trimmed: what arrived before `horizon_ms` may be."""
        return self.complete_ms is not None and self.complete_ms < horizon_ms

    @property
    def behind(self) -> str:
        """Where it goes on, for people."""
        if self.after is not None:
            return f"behind sequence number {self.after}"
        if self.begins_ms is not None:
            at = dt.datetime.fromtimestamp((self.begins_ms - 1) / 1000, dt.UTC)
            return f"behind what arrived by {at.isoformat()}"
        return "at its beginning"


def trimmed(position: ShardPosition, first: str | None, retention_h: float) -> DataLossError:
    """The error for records that may be gone. `first`: the sequence number of the first one that is there."""
    there = "nothing is left there" if first is None else f"the first record there is {first}"
    return DataLossError(
        f"stream {position.stream!r}, {position.shard_id} has to go on {position.behind}, and {there}: what "
        f"came in between may have been trimmed, since the stream keeps records for {retention_h:.0f} h: "
        f"{_START_ANEW}, and raise the stream's retention above the longest stop"
    )


def gone(position: ShardPosition, why: str) -> DataLossError:
    """The error for a shard, or a stream, that is not there any more."""
    return DataLossError(
        f"stream {position.stream!r}, {position.shard_id} has to go on {position.behind}, and {why}: "
        f"{_START_ANEW}"
    )


def lost_parent(position: ShardPosition) -> DataLossError:
    """The error for a shard whose parent was never read, and is gone."""
    return DataLossError(
        f"stream {position.stream!r}: {position.lost_parent} was to be read before {position.shard_id}, "
        f"which was made of it, and is not there any more (its retention is over): {_START_ANEW}"
    )
