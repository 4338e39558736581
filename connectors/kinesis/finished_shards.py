"""FinishedShards: what a checkpoint remembers of shards that were read to their end. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from onceflow.connectors.kinesis.position import ShardPosition
from onceflow.runtime.contracts import Json

_NUMBERED = "shardId-"
_DIGITS = 12


class FinishedShards:
    """Shards by their numbers, in ranges; and of those whose children are not finished, until when all was
    read."""

    def __init__(self, remembered: Json) -> None:
        """`remembered`: what `with_shards` returned; None: there are none."""
        given = remembered or {"from_ms": None, "shards": [], "others": [], "complete_ms": {}}
        self.from_ms: int | None = given["from_ms"]
        """What arrived before is not read, in none of the shards."""
        self._ranges: list[list[int]] = [list(each) for each in given["shards"]]
        self._others: frozenset[str] = frozenset(given["others"])
        self._complete_ms: dict[str, int | None] = dict(given["complete_ms"])

    def __contains__(self, shard_id: str) -> bool:
        number = _number(shard_id)
        if number is None:
            return shard_id in self._others
        return any(first <= number <= last for first, last in self._ranges)

    def complete_ms(self, parents: Sequence[str]) -> int | None:
        """The time until when all was read of these; None: nothing is known."""
        known = [at for parent in parents if (at := self._complete_ms.get(parent)) is not None]
        return min(known, default=None)

    def with_shards(self, shards: Iterable[ShardPosition]) -> Json:
        """These shards, too; JSON."""
        new = {shard.shard_id: shard for shard in shards if shard.shard_id not in self}
        numbers = {number for each in new if (number := _number(each)) is not None}
        for first, last in self._ranges:
            numbers.update(range(first, last + 1))
        complete_ms = self._complete_ms | {each: shard.complete_ms for each, shard in new.items()}
        for shard in new.values():
            for parent in shard.parents:
                complete_ms.pop(parent, None)
        starts = [at for at in (self.from_ms, *(shard.from_ms for shard in new.values())) if at is not None]
        others = self._others | {each for each in new if _number(each) is None}
        return {
            "from_ms": max(starts, default=None),
            "shards": _ranges(sorted(numbers)),
            "others": sorted(others),
            "complete_ms": dict(sorted(complete_ms.items())),
        }


def _number(shard_id: str) -> int | None:
    digits = shard_id.removeprefix(_NUMBERED)
    is_numbered = shard_id.startswith(_NUMBERED) and digits.isdecimal() and len(digits) == _DIGITS
    return int(digits) if is_numbered else None


def _ranges(numbers: Sequence[int]) -> list[Json]:
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [*ranges]
