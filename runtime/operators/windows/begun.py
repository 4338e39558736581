"""Begun: which open windows began before an aggregate was added to the program.

Rows that such a window had by then are not in the aggregate, so its result would be a wrong number: it is
null instead. In a snapshot that is a field beside the aggregates, as long as there is such a window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import Indices
from onceflow.runtime.state.columns import FreezableColumn
from onceflow.runtime.state.table import Frozen, LiveRows

BEGUN_BEFORE = "(begun before)"
"""The field of a state's value: a struct of booleans, one for each aggregate that was added."""


class HasResults(Protocol):
    """An aggregate of all rows, as far as it is needed here."""

    def results(self, rows: Indices) -> pa.Array: ...


class Begun:
    """Flags for each aggregate and row. False as a whole, and free, while no aggregate has any."""

    def __init__(self) -> None:
        self._flags: dict[str, FreezableColumn] = {}

    def __bool__(self) -> bool:
        return bool(self._flags)

    @property
    def aggregates(self) -> Iterable[str]:
        """The aggregates that have a flagged row."""
        return self._flags.keys()

    def grow(self, size: int) -> None:
        for flags in self._flags.values():
            flags.grow(size)

    def load(self, rows: Indices, size: int, aggregates: Iterable[str], state: pa.StructArray) -> None:
        """Rows that were restored: flagged for aggregates that the state lacks, or has flagged itself."""
        there = [field.name for field in state.type]
        before = state.field(BEGUN_BEFORE) if BEGUN_BEFORE in there else None
        flagged_before = [] if before is None else [field.name for field in before.type]
        for name in aggregates:
            if name not in there:
                self._flag(name, rows, size)
            elif before is not None and name in flagged_before:
                is_flagged = before.field(name).to_numpy(zero_copy_only=False)
                self._flag(name, rows[is_flagged], size)

    def results(self, name: str, column: HasResults, rows: Indices) -> pa.Array:
        """The aggregate's results, null where it has none."""
        flags = self._flags.get(name)
        begun = None if flags is None else flags.values.take(rows)
        if begun is None or not begun.any():
            return column.results(rows)
        place = np.cumsum(~begun) - 1
        return column.results(rows[~begun]).take(pa.array(place, mask=begun))

    def merged(self, rows: Indices, groups: Indices, size: int) -> Begun:
        """`size` rows; one of which a flagged row is a part is flagged."""
        fresh = Begun()
        for name, flags in self._flags.items():
            fresh._flag(name, groups[flags.values.take(rows)], size)
        return fresh

    def merge(self, into: Indices, rows: Indices) -> None:
        """Rows of `into` get the flags of those that become a part of them."""
        for flags in self._flags.values():
            flags.values[into[flags.values.take(rows)]] = True

    def clear(self, rows: Indices) -> None:
        """What is in these rows begins now."""
        for flags in self._flags.values():
            flags.refill(rows)

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order. Aggregates without a flagged row are forgotten."""
        for name, flags in list(self._flags.items()):
            flags.keep(rows)
            if not flags.used().any():
                del self._flags[name]

    def freeze(self, live: LiveRows) -> Frozen:
        frozen = {name: live.frozen(flags) for name, flags in self._flags.items()}
        return lambda rows: pa.StructArray.from_arrays(
            [pa.array(flags(rows)) for flags in frozen.values()], [*frozen]
        )

    def _flag(self, name: str, rows: Indices, size: int) -> None:
        if not len(rows):
            return
        flags = self._flags.setdefault(name, FreezableColumn(np.bool_))
        flags.grow(size)
        flags.values[rows] = True
