"""How splits of several sources lie in one: which source each is of, and what is still to be read. Pure.

A split's id is that of its source's split behind the number of the source ("0/2026-01.parquet",
"1/events-3"). Its position is the inner one, beside what comes when the source is read to its end: `then`, in
one split of each source that has a successor, has the splits of all later sources. So where reading will go
on is durable from the first checkpoint on, and when it does, nobody is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onceflow.runtime.contracts import Json, SplitState

_INNER, _THEN = "position", "then"


def outer_id(number: int, split_id: str) -> str:
    return f"{number}/{split_id}"


def number_of(split_id: str) -> int:
    """Which source a split is of."""
    return int(split_id.partition("/")[0])


def outer(number: int, split: SplitState, then: Json = None) -> SplitState:
    position: dict[str, Json] = {_INNER: dict(split.position)}
    if then is not None:
        position[_THEN] = then
    return SplitState(outer_id(number, split.split_id), position)


def inner(split: SplitState) -> SplitState:
    return SplitState(split.split_id.partition("/")[2], _mapping(split.position[_INNER]))


def then_of(split: SplitState) -> Json:
    return split.position.get(_THEN)


def first_splits(of_sources: Sequence[Sequence[SplitState]]) -> list[SplitState]:
    """The splits to begin with: those of the first source that has any. `of_sources`: what each has."""
    for number, splits in enumerate(of_sources):
        if splits:
            later: Json = [[_to_json(split) for split in later] for later in of_sources[number + 1 :]]
            then = later if number + 1 < len(of_sources) else None
            return [outer(number, split, None if at else then) for at, split in enumerate(splits)]
    return []


@dataclass(frozen=True, slots=True)
class Finished:
    """What is remembered of finished splits; JSON in the checkpoint."""

    number: int = 0
    """The last source of which a split has finished."""
    of_source: Json = None
    """What that source itself remembers of its finished splits, if it does."""
    then: Json = None
    """The splits of all later sources, if the split that had them has finished."""

    @staticmethod
    def of(remembered: Json) -> Finished:
        return Finished() if remembered is None else Finished(**_mapping(remembered))

    def to_json(self) -> Json:
        return {"number": self.number, "of_source": self.of_source, "then": self.then}

    @property
    def next_splits(self) -> list[SplitState]:
        """What to read once all splits of the source `number` have finished."""
        before: list[list[SplitState]] = [[] for _ in range(self.number + 1)]
        return first_splits([*before, *self.later_splits])

    @property
    def later_splits(self) -> list[list[SplitState]]:
        """What each later source begins with, as that source has it."""
        return [[_of_json(split) for split in splits] for splits in self.then or ()]


def _to_json(split: SplitState) -> Json:
    return [split.split_id, dict(split.position)]


def _of_json(value: Json) -> SplitState:
    split_id, position = value
    return SplitState(split_id, position)


def _mapping(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping), value
    return value
