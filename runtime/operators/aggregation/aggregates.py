"""What a window computes: count(), sum_("amount"), ..., and the user's own AggregateFunction.

These are descriptions; typed_aggregates.py checks them, accumulators.py has the columns that they become.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import polars as pl

from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.aggregation.evicted_rows import Eviction
from onceflow.runtime.operators.aggregation.sketch_library import sketch_library
from onceflow.runtime.state.kept_objects import CodecName

In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")


class Kind(StrEnum):
    """The built-in aggregates, by the name a user knows."""

    COUNT = "count"
    SUM = "sum_"
    MIN = "min_"
    MAX = "max_"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    COLLECT_LIST = "collect_list"
    EVICTED_ROWS = "evicted_rows"
    """Whole rows, for a window with an evictor; users do not call it."""
    COUNT_DISTINCT = "count_distinct"
    QUANTILE = "quantile"
    APPROX_QUANTILE = "approx_quantile"
    APPROX_COUNT_DISTINCT = "approx_count_distinct"


@dataclass(frozen=True, slots=True)
class BuiltinAggregate:
    """An aggregate over a column, a polars expression, or (count) over rows. Made by count(), sum_(), ..."""

    kind: Kind
    argument: str | pl.Expr | None = None
    rank: float = 0.5
    """The share of a quantile, from 0 to 1."""
    k: int = 0
    """How much a sketch of quantiles keeps."""
    eviction: Eviction | None = None
    """Which rows stay, of evicted rows."""


class AggregateFunction(ABC, Generic[In, Acc, Out]):
    """The user's own aggregate over records; names and argument order are PyFlink's.

    One object serves all keys: it must keep nothing in itself. The return annotations of
    `create_accumulator` and `get_result` are the types of the state and of the result column.
    """

    codec: CodecName = "columns"
    """How accumulators are kept: "msgspec" or "pickle" in the class, as `codec = "pickle"`, keeps them as
    bytes, for a class that has no columns, as the codec of a ValueState does."""

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """A new, empty accumulator: once per key and window."""

    @abstractmethod
    def add(self, value: In, accumulator: Acc) -> Acc:
        """The accumulator with one more record; may change and return the one it got."""

    @abstractmethod
    def merge(self, accumulator_a: Acc, accumulator_b: Acc) -> Acc:
        """Two accumulators of the same key as one: for windows that merge."""

    @abstractmethod
    def get_result(self, accumulator: Acc) -> Out:
        """What the window emits. Must not change the accumulator."""


Aggregate = BuiltinAggregate | AggregateFunction[Any, Any, Any]


@explained
def count(column: str | pl.Expr | None = None) -> BuiltinAggregate:
    """How many rows; with a column or expression: how many that are not null. int64."""
    return BuiltinAggregate(Kind.COUNT, column)


@explained
def sum_(column: str | pl.Expr) -> BuiltinAggregate:
    """The sum: int64 over integers and booleans, double over floats, over decimals exactly a decimal of 38
    digits, as many of them behind the point as there were; null if every value is null.

    A sum that does not fit int64 or the 38 digits fails the job and names the key: the sum never wraps
    around. An expression that is summed is computed by polars before, whose integers do wrap around.
    """
    return BuiltinAggregate(Kind.SUM, column)


@explained
def min_(column: str | pl.Expr) -> BuiltinAggregate:
    """The lowest value, of the column's type; nulls are skipped, NaN counts only if all values are NaN.

    Strings are compared by code point.
    """
    return BuiltinAggregate(Kind.MIN, column)


@explained
def max_(column: str | pl.Expr) -> BuiltinAggregate:
    """The highest value; like `min_`."""
    return BuiltinAggregate(Kind.MAX, column)


@explained
def mean(column: str | pl.Expr) -> BuiltinAggregate:
    """The mean as double, over integers from an exact sum of any size; null if every value is null.

    Over decimals there is none, since no one scale is right: divide `sum_` by `count`, or cast the column.
    """
    return BuiltinAggregate(Kind.MEAN, column)


@explained
def first(column: str | pl.Expr) -> BuiltinAggregate:
    """The value of the row with the lowest event time (of several: came first); nulls are skipped."""
    return BuiltinAggregate(Kind.FIRST, column)


@explained
def last(column: str | pl.Expr) -> BuiltinAggregate:
    """The value of the row with the highest event time (of several: came last); nulls are skipped."""
    return BuiltinAggregate(Kind.LAST, column)


@explained
def collect_list(column: str | pl.Expr | None = None) -> BuiltinAggregate:
    """A list of the values or, without a column, of whole rows as structs; nulls are skipped, and it is null
    if every value is. They are in the order in which they came; where windows overlap or merge, in that of
    each part, one part after the other. All are kept until the window fires."""
    return BuiltinAggregate(Kind.COLLECT_LIST, column)


@explained
def count_distinct(column: str | pl.Expr) -> BuiltinAggregate:
    """How many different values there are, exactly; nulls don't count, all NaN are one. int64. Each is kept
    until the window has fired."""
    return BuiltinAggregate(Kind.COUNT_DISTINCT, column)


@explained
def quantile(column: str | pl.Expr, q: float) -> BuiltinAggregate:
    """The value below which a share `q` of the numbers lies, from 0 to 1, as double: quantile("ms", 0.5) is
    the median. Exact: between two values it is interpolated linearly, as NumPy does by default. Nulls and NaN
    are left out, and it is null if nothing is left. All values are kept until the window fires; to keep less
    use approx_quantile(). Raises OptionError for another `q`."""
    return BuiltinAggregate(Kind.QUANTILE, column, _rank(q, "quantile"))


@explained
def approx_quantile(column: str | pl.Expr, q: float, k: int = 200) -> BuiltinAggregate:
    """About `quantile`, from a KLL sketch of a few kilobytes however many numbers there are, as double: one
    of the values, whose rank differs from `q` by at most 1.33 % of their number with k=200, by 0.35 % with
    k=800, in 99 of 100 cases. Up to `k` values it is exact, by the nearest rank. Nulls and NaN are left out.

    Needs `pip install 'onceflow[sketches]'`, here and where the slots run: raises UsageError. Raises
    OptionError for a `q` that is not from 0 to 1 and a `k` that is not from 8 to 65535.
    """
    if not isinstance(k, int) or isinstance(k, bool) or not 8 <= k <= 65535:
        raise OptionError(f"approx_quantile(k={k!r}): give a number from 8 to 65535")
    sketch_library()
    return BuiltinAggregate(Kind.APPROX_QUANTILE, column, _rank(q, "approx_quantile"), k)


@explained
def approx_count_distinct(column: str | pl.Expr) -> BuiltinAggregate:
    """About how many different values there are, from a HyperLogLog sketch of at most 4 kB, as int64: within
    1.7 % in two of three cases, within 5.1 % in 99 of 100; a few hundred are nearly always counted exactly.
    The same values give the same number, in whatever order they come. Nulls don't count, all NaN are one.

    Needs `pip install 'onceflow[sketches]'`, here and where the slots run: raises UsageError.
    """
    sketch_library()
    return BuiltinAggregate(Kind.APPROX_COUNT_DISTINCT, column)


def _rank(q: Any, method: str) -> float:
    if not isinstance(q, int | float) or isinstance(q, bool) or not 0 <= q <= 1:
        raise OptionError(f"{method}(q={q!r}): give a share from 0 to 1, as in q=0.99")
    return float(q)
