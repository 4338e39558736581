"""The columns of a join: which come from which side, how pairs and rows without a partner become batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.operators.expressions import rows_where
from onceflow.runtime.records import Indices, Mask
from onceflow.runtime.state.rows import take_rows
from onceflow.runtime.types.column_forms import renamed

LEFT, RIGHT = 0, 1
LATE_SIDES = ("late left", "late right")
"""The tags of the side outputs with late rows, within the graph."""
SUFFIX = "_right"
"""What a right column is called behind that has the name of a left one."""
PADDED = {"inner": (), "left": (LEFT,), "right": (RIGHT,), "full": (LEFT, RIGHT)}
"""Which sides' rows come out without a partner too, by what `how=` says."""


@dataclass(frozen=True)
class JoinedColumns:
    """What a join of two schemas by these keys gives: the left columns, then the right ones but for its keys.

    A key column is there once, under its left name, and has the value of whichever row there is.
    """

    uid: str
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    how: str

    def __post_init__(self) -> None:
        if self.how not in PADDED:
            raise GraphError(f"operator {self.uid!r}: how={self.how!r}: write one of {', '.join(PADDED)}")

    @property
    def padded(self) -> Sequence[int]:
        return PADDED[self.how]

    def passes(self, left: pa.Schema, right: pa.Schema) -> dict[str, tuple[int, str]]:
        """The output columns, and which column of which side each is."""
        found = {name: (LEFT, name) for name in left.names}
        for name in right.names:
            if name in self.keys[RIGHT]:
                continue
            out = name + SUFFIX if name in found else name
            if out in found:
                raise GraphError(
                    f"operator {self.uid!r}: two columns would be called {out!r}: rename one of them before "
                    "the join, with select(...)"
                )
            found[out] = (RIGHT, name)
        return found

    def schema(self, passes: Mapping[str, tuple[int, str]], left: pa.Schema, right: pa.Schema) -> pa.Schema:
        """The output columns whose input columns are there."""
        sides = (left, right)
        return pa.schema(
            [
                self._field(name, of, sides[of].field(column), right)
                for name, (of, column) in passes.items()
                if column in sides[of].names
            ]
        )

    def _field(self, name: str, of: int, field: pa.Field, right: pa.Schema) -> pa.Field:
        if of == LEFT and field.name in self.keys[LEFT]:
            theirs = right.field(self.keys[RIGHT][self.keys[LEFT].index(field.name)])
            is_nullable = field.nullable or (RIGHT in self.padded and theirs.nullable)
        else:
            is_nullable = field.nullable or (1 - of) in self.padded
        return renamed(field, name).with_nullable(is_nullable)


class Gatherer:
    """Makes output batches of pairs of rows."""

    def __init__(
        self,
        columns: JoinedColumns,
        passes: Mapping[str, tuple[int, str]],
        schemas: tuple[pa.Schema, pa.Schema],
        condition: pl.Expr | None,
    ) -> None:
        self.schema = columns.schema(passes, *schemas)
        self._keys = columns.keys
        self._passes = {name: passes[name] for name in self.schema.names}
        self._condition = condition
        reads = set() if condition is None else set(condition.meta.root_names())
        self._asked = {name: of for name, of in passes.items() if name in reads}

    def holds(self, sides: Sequence[pa.RecordBatch], rows: Sequence[Indices]) -> Mask | None:
        """Whether the condition is true, for each of these pairs; None: it is for all."""
        if self._condition is None:
            return None
        found: dict[str, Any] = {
            name: sides[of].column(column).take(pa.array(rows[of]))
            for name, (of, column) in self._asked.items()
        }
        return rows_where(self._condition, found, len(rows[0]))

    def pairs(self, sides: Sequence[pa.RecordBatch], rows: Sequence[Indices]) -> pa.RecordBatch:
        """The output of pairs: rows[0] of the left batch with rows[1] of the right one."""
        names = [{column for of, column in self._passes.values() if of == side} for side in (LEFT, RIGHT)]
        taken = [
            take_rows(sides[side].select(sorted(names[side])), rows[side]) if names[side] else None
            for side in (LEFT, RIGHT)
        ]
        columns = []
        for of, column in self._passes.values():
            its = taken[of]
            assert its is not None
            columns.append(its.column(column))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def alone(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The output of rows of one side that have no partner."""
        columns = []
        for field, (of, column) in zip(self.schema, self._passes.values(), strict=True):
            if of == side:
                columns.append(batch.column(column))
            elif side == RIGHT and column in self._keys[LEFT]:
                columns.append(batch.column(self._keys[RIGHT][self._keys[LEFT].index(column)]))
            else:
                columns.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def null_keys(batch: pa.RecordBatch, keys: Sequence[str]) -> Mask | None:
    """The rows whose key has a null, which is equal to nothing, as in SQL. None: there are none."""
    found: Mask | None = None
    for name in keys:
        column = batch.column(name)
        if column.null_count:
            mask = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
            found = mask if found is None else found | mask
    return found
