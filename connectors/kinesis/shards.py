"""Which shards may be read now: a child only when its parents have been read to their end. Pure.

A shard that is split or merged is closed: it takes no records any more, and its children take those of its
keys. Whoever reads a child before its parents' end sees records of a key in another order; whoever forgets,
in a restart, that the children of a finished shard have not been given out yet, loses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onceflow.connectors.kinesis.finished_shards import FinishedShards


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as the stream lists it."""

    shard_id: str
    parents: tuple[str, ...]
    """The shards that were split or merged into it, listed or not."""
    first_hash: str
    last_hash: str
    is_open: bool = True


class NewShard(NamedTuple):
    """A shard that is to be read now."""

    shard: Shard
    lost_parent: str | None = None
    """A parent that should have been read before, and is not there any more."""


def first_shards(listed: Sequence[Shard], only_open: bool) -> list[Shard]:
    """The shards to begin with: the oldest that are there, or those that are open."""
    by_id = {shard.shard_id: shard for shard in listed}
    if not only_open:
        return [shard for shard in listed if not any(parent in by_id for parent in shard.parents)]
    return [shard for shard in listed if shard.is_open]


def new_shards(listed: Sequence[Shard], known: frozenset[str], finished: FinishedShards) -> list[NewShard]:
    """What is to be read and was not given out yet: its parents are finished, durably. Ancestors of what was
    given out are none of it: their time was before the job's start."""
    by_id = {shard.shard_id: shard for shard in listed}
    begun = [shard_id for shard_id in by_id if shard_id in known or shard_id in finished]
    ancestors = _ancestors(begun, by_id)
    new = []
    for shard in listed:
        shard_id = shard.shard_id
        if shard_id in known or shard_id in finished or shard_id in ancestors:
            continue
        waited_for = [p for p in shard.parents if p not in finished and p not in ancestors]
        if not waited_for:
            new.append(NewShard(shard))
            continue
        lost = [p for p in waited_for if p not in by_id and p not in known]
        if len(lost) == len(waited_for):
            new.append(NewShard(shard, lost[0]))
    return new


def _ancestors(begun: Iterable[str], by_id: Mapping[str, Shard]) -> frozenset[str]:
    found: set[str] = set()
    left = [*begun]
    while left:
        shard = by_id.get(left.pop())
        for parent in shard.parents if shard is not None else ():
            if parent not in found:
                found.add(parent)
                left.append(parent)
    return frozenset(found)
