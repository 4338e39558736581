"""Computed where the rows are, and checked there: a row for which SQL has no value ends the job with a
sentence instead of getting another one.

Each of these is one step over the values of its parts, which are computed once, however often its rule names
them: expressions grow with the text of a query and not faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import polars as pl

from onceflow.runtime.errors import Fatal

FIRST, SECOND, MADE = pl.col("0"), pl.col("1"), pl.col("made")
"""The first two parts, and what is made of them, in the rule of a step."""
Checks = Sequence[tuple[pl.Expr, str]]
"""What is wrong of a row, and the sentence about it."""


class NoSuchValueError(Fatal):
    """An expression of a query has no value for a row: a division by zero, an overflow."""

    def __str__(self) -> str:
        """The sentence, without what polars adds behind it."""
        return str(self.args[0]).partition("\n\nThis error occurred")[0]


def part(place: int) -> pl.Expr:
    """The part at this place, from 0, in the rule of a step."""
    return pl.col(str(place))


def step(parts: Sequence[pl.Expr], rule: pl.Expr, dtype: pl.DataType, checks: Checks = ()) -> pl.Expr:
    """What the rule makes of the parts. A row for which a check is true ends the job with its sentence."""
    roots = [name for part in parts for name in part.meta.root_names()]
    # A column says how many rows there are: of a part that is the same in all, polars may make one value.
    counted = [pl.col(roots[0])] if roots else []
    made = partial(_made, rule, dtype, tuple(checks), len(parts))
    return pl.map_batches([*parts, *counted], made, return_dtype=dtype)


def _made(
    rule: pl.Expr, dtype: pl.DataType, checks: Checks, count: int, parts: Sequence[pl.Series]
) -> pl.Series:
    rows = len(parts[-1])
    named = [
        (part if len(part) == rows else part.new_from_index(0, rows)).alias(str(place))
        for place, part in enumerate(parts[:count])
    ]
    frame = pl.DataFrame(named).with_columns_seq(rule.alias("made"))
    for is_wrong, sentence in checks:
        if frame.select_seq(is_wrong.alias("_").any())["_"].item():
            raise NoSuchValueError(f"SQL, {sentence}")
    return frame["made"].cast(dtype, strict=False)
