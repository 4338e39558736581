"""Evictors: which of a window's rows are left out when it fires, for functions of whole windows.

Descriptions, and the class of the user's own; operators/aggregation/evicted_rows.py does it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.user_functions import function_name

In = TypeVar("In")


@dataclass(frozen=True, slots=True)
class BuiltInEvictor:
    """Which rows stay when a window fires. One of its parts is set."""

    rows: int | None = None
    """The number of last rows that stay."""
    age_ms: int | None = None
    """Rows stay that happened less than this before the latest."""
    threshold: float = 0.0
    delta: str | Callable[[Any, Any], Any] | None = None
    """What says how far a row is from the last one, which has to be less than `threshold`: a column, or a
    function of both."""

    @property
    def title(self) -> str:
        """A text that is compared with a checkpoint's."""
        if self.rows is not None:
            return f"the last {self.rows} rows"
        if self.age_ms is not None:
            return f"rows of the last {self.age_ms} ms"
        assert self.delta is not None
        by = repr(self.delta) if isinstance(self.delta, str) else function_name(self.delta)
        return f"rows less than {self.threshold} from the last by {by}"


class Evictor(ABC, Generic[In]):
    """The user's own choice of a window's rows: `.evictor(MyEvictor())`. One object serves all windows: it
    must keep nothing in itself, and say the same of the same rows."""

    @abstractmethod
    def keeps(self, records: list[In], timestamps: list[int]) -> Iterable[bool]:
        """Says of each record whether it stays; called when a window fires, with the records that it holds,
        in the order in which they came, and their event times in ms."""


@explained
def evict_count(rows: int) -> BuiltInEvictor:
    """The last so many rows of a window stay, in the order in which they came. Raises OptionError if it is no
    number of rows."""
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise OptionError(f"evict_count({rows!r}): give a number of rows that stay, 1 at least")
    return BuiltInEvictor(rows=rows)


@explained
def evict_time(age: str | int) -> BuiltInEvictor:
    """The rows stay that happened less than `age` ("10 s", or int ms) before the latest of the window, by
    event time. Raises OptionError for what is not a duration."""
    age_ms = duration_ms(age, "evict_time")
    if age_ms < 1:
        raise OptionError(f"evict_time({age!r}): an age is at least 1 ms: give a longer one")
    return BuiltInEvictor(age_ms=age_ms)


@explained
def evict_delta(threshold: float, distance: str | Callable[[Any, Any], Any]) -> BuiltInEvictor:
    """The rows stay whose distance to the window's last row is less than `threshold`. `distance`: the name of
    a column of numbers, where it is how far its values are apart, and nulls stay; or a function
    `fn(record, last) -> float`. Raises OptionError for what is none of these."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold > 0:
        raise OptionError(f"evict_delta({threshold!r}, ...): give a number above 0 as the threshold")
    if not isinstance(distance, str) and not callable(distance):
        raise OptionError(
            f"evict_delta(..., {distance!r}): give a column's name, or a function of a record and the last "
            "one"
        )
    return BuiltInEvictor(threshold=float(threshold), delta=distance)
