"""What two runs would have written to one sink, side by side. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.runtime.records import RowKind

_GONE = (int(RowKind.UPDATE_BEFORE), int(RowKind.DELETE))
_COUNT, _OTHER, _PLACE = "onceflow.count", "onceflow.other", "onceflow.place"


@dataclass(frozen=True, slots=True)
class ComparedRows:
    """How the rows of a sink differ. With a key a row is what its key has at the end; without one the same
    row may be there several times, and each counts."""

    key: Sequence[str]
    same: int
    only_before: int
    only_after: int
    changed: int = 0
    """How many keys have other values; without a key there are none."""
    columns_before: Sequence[str] = ()
    """The columns that are in the first only; those are not compared."""
    columns_after: Sequence[str] = ()
    examples: Sequence[dict[str, Any]] = field(default_factory=list)
    """Some of the rows that differ: `change` ("-", "+", "before", "after") and the columns."""

    @property
    def differ(self) -> bool:
        counts = self.only_before + self.only_after + self.changed
        return bool(counts or self.columns_before or self.columns_after)


def compared(
    before: pl.DataFrame, after: pl.DataFrame, key: Sequence[str], ignored: Sequence[str], examples_max: int
) -> ComparedRows:
    """The rows as dry runs wrote them, in their order: with the kinds of rows in a column if there are any.
    Columns that are `ignored`, or are not in both, do not count."""
    left, right = (each.drop(ignored, strict=False) for each in (before, after))
    mine = [name for name in left.columns if name not in right.columns and name != KIND]
    others = [name for name in right.columns if name not in left.columns and name != KIND]
    names = [name for name in left.columns if name in right.columns and name != KIND]
    left, right = _alike(left, right, names)
    found = _by_key(left, right, names, key) if key else _one_by_one(left, right, names)
    same, minus, plus, was, now = found
    examples = _examples(examples_max, names, {"-": minus, "+": plus}, was, now)
    return ComparedRows(key, same, len(minus), len(plus), len(was), mine, others, examples)


def _alike(
    left: pl.DataFrame, right: pl.DataFrame, names: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both with a kind, and columns that can be held against each other: what is nested, or has two types
    that have none in common, as text."""

    def prepared(frame: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        kind = pl.col(KIND) if KIND in frame.columns else pl.lit(0, pl.Int8).alias(KIND)
        return frame.select(*(_comparable(name, frame, other) for name in names), kind)

    return prepared(left, right), prepared(right, left)


def _comparable(name: str, frame: pl.DataFrame, other: pl.DataFrame) -> pl.Expr:
    mine, theirs = frame.schema[name], other.schema[name]
    if mine.is_nested() or theirs.is_nested():
        return pl.struct(name).struct.json_encode().alias(name)
    if mine == theirs:
        return pl.col(name)
    return pl.col(name).cast(pl.Float64 if mine.is_numeric() and theirs.is_numeric() else pl.String)


_Found = tuple[int, pl.DataFrame, pl.DataFrame, pl.DataFrame, pl.DataFrame]
"""How many rows are the same; the rows that are in one only; and the changed ones, before and after."""


def _one_by_one(left: pl.DataFrame, right: pl.DataFrame, names: Sequence[str]) -> _Found:
    """Each row counts as often as it was written, less as often as it was taken back."""
    both = [
        frame.group_by(names, maintain_order=True).agg(
            pl.when(pl.col(KIND).is_in(_GONE)).then(-1).otherwise(1).sum().alias(_COUNT)
        )
        for frame in (left, right)
    ]
    joined = both[0].join(
        both[1].rename({_COUNT: _OTHER}), on=names, how="full", nulls_equal=True, coalesce=True
    )
    counts = joined.with_columns(pl.col(_COUNT).fill_null(0), pl.col(_OTHER).fill_null(0))
    same = int(counts.select(pl.min_horizontal(_COUNT, _OTHER).clip(lower_bound=0).sum()).item())
    more = pl.col(_COUNT) - pl.col(_OTHER)
    minus, plus = (
        counts.filter(each > 0).select(pl.col(names).repeat_by(each.filter(each > 0)).explode())
        for each in (more, -more)
    )
    nothing = counts.select(names).clear()
    return same, minus, plus, nothing, nothing


def _by_key(left: pl.DataFrame, right: pl.DataFrame, names: Sequence[str], key: Sequence[str]) -> _Found:
    """The last row of each key counts, unless it takes the key away."""
    last = [
        frame.with_row_index(_PLACE)
        .group_by(key, maintain_order=True)
        .last()
        .filter(~pl.col(KIND).is_in(_GONE))
        .select(names)
        for frame in (left, right)
    ]
    (was, now), on = last, list(key)
    minus = was.join(now, on=on, how="anti", nulls_equal=True)
    plus = now.join(was, on=on, how="anti", nulls_equal=True)
    equal = was.join(now, on=list(names), how="semi", nulls_equal=True)
    changed = was.join(minus, on=on, how="anti", nulls_equal=True).join(
        equal, on=on, how="anti", nulls_equal=True
    )
    after = changed.select(on).join(now, on=on, how="left", nulls_equal=True).select(names)
    return len(equal), minus, plus, changed, after


def _examples(
    count_max: int,
    names: Sequence[str],
    alone: dict[str, pl.DataFrame],
    was: pl.DataFrame,
    now: pl.DataFrame,
) -> list[dict[str, Any]]:
    found = [
        {"change": change, **row}
        for pair in zip(was.head(count_max).to_dicts(), now.head(count_max).to_dicts(), strict=True)
        for change, row in zip(("before", "after"), pair, strict=True)
    ]
    for change, frame in alone.items():
        found += [{"change": change, **row} for row in frame.head(count_max).to_dicts()]
    return found
