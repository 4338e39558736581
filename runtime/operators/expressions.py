"""Filter and compute columns with polars expressions: several steps, one evaluation per batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.records import Mask, Records

_ROW = "__onceflow_row"


@dataclass(frozen=True, slots=True)
class Keep:
    """The rows for which the predicate is true; false and null go."""

    predicate: pl.Expr


@dataclass(frozen=True, slots=True)
class Columns:
    """Exactly these columns, by name; `pl.col(name)` is one that goes through as it is."""

    expressions: tuple[tuple[str, pl.Expr], ...]


Step = Keep | Columns


def needed_columns(steps: Sequence[Step], wanted: Iterable[str]) -> set[str]:
    """The input columns from which the wanted output columns, and all predicates, can be computed."""
    needed = set(wanted)
    for step in reversed(steps):
        match step:
            case Keep(predicate):
                needed |= set(predicate.meta.root_names())
            case Columns(expressions):
                used = [e for name, e in expressions if name in needed]
                needed = {root for e in used for root in e.meta.root_names()}
    return needed


def prune(steps: Sequence[Step], wanted: Iterable[str]) -> list[Step]:
    """The same steps without the columns that nobody reads."""
    pruned: list[Step] = []
    needed = set(wanted)
    for step in reversed(steps):
        if isinstance(step, Columns):
            step = Columns(tuple((n, e) for n, e in step.expressions if n in needed))
        pruned.append(step)
        needed = needed_columns([step], needed)
    return pruned[::-1]


class Expressions:
    """Fused steps over one batch: the transform of a stateless operator.

    Only columns that an expression reads go to polars; the rest is passed on by reference, or taken by
    pyarrow where a predicate drops rows. `schema` is the output: its types are kept (polars' own large
    strings don't leak). Event time, origin and key hash follow the rows.
    """

    def __init__(self, steps: Sequence[Step], schema: pa.Schema) -> None:
        self._schema = schema
        self._through = _passed_through(steps, schema.names)
        self._computed = [name for name in schema.names if name not in self._through]
        # A predicate at the front is a mask over the batch: far cheaper than a frame with row numbers.
        is_masked = bool(steps) and isinstance(steps[0], Keep)
        self._mask = steps[0].predicate if is_masked and isinstance(steps[0], Keep) else None
        self._rest = prune(steps[1:] if is_masked else steps, self._computed)
        self._rest_drops = any(isinstance(step, Keep) for step in self._rest)
        self._rest_reads = needed_columns(self._rest, self._computed)
        self._kept = sorted(self._rest_reads | set(self._through.values()))

    def __call__(self, records: Records) -> Records | None:
        kept = self._masked(records)
        frame = None
        if self._computed or self._rest_drops:
            frame = self._run_rest(kept)
            if self._rest_drops:
                kept = kept.take(frame[_ROW].to_numpy())
        return kept.with_batch(self._assemble(kept.batch, frame)) if len(kept) else None

    def _masked(self, records: Records) -> Records:
        """The rows that the first predicate keeps, with the columns that are still needed."""
        narrow = records.with_batch(records.batch.select(self._kept))
        if self._mask is None:
            return narrow
        frame = frame_of(records.batch, set(self._mask.meta.root_names()))
        mask = frame.select_seq(self._mask.fill_null(False).alias("keep"))["keep"].to_numpy()
        if len(mask) != len(records):  # a predicate of nothing but literals
            mask = np.broadcast_to(mask, len(records))
        return narrow if mask.all() else narrow.take(np.flatnonzero(mask))

    def _run_rest(self, kept: Records) -> pl.DataFrame:
        frame = frame_of(kept.batch, self._rest_reads)
        if not self._rest_drops:
            # Nothing to plan: a query costs three times what simple expressions over a batch do. And one
            # after the other: the slot has one core, and polars' threads spin while they wait for more.
            for step in self._rest:
                assert isinstance(step, Columns), "it drops no rows"
                frame = frame.with_columns_seq(e.alias(n) for n, e in step.expressions)
            return frame
        return self._query(frame.lazy(), len(kept)).collect()

    def _query(self, frame: pl.LazyFrame, size: int) -> pl.LazyFrame:
        # Row numbers go along: they say which rows stay, and keep the height of a frame that has no other
        # column for a while.
        frame = frame.with_columns(pl.int_range(size, dtype=pl.Int64).alias(_ROW))
        for step in self._rest:
            match step:
                case Keep(predicate):
                    frame = frame.filter(predicate)
                case Columns(expressions):
                    # with_columns first: a select of nothing but literals would make one row.
                    frame = frame.with_columns(e.alias(n) for n, e in expressions)
                    frame = frame.select(*(n for n, _ in expressions), _ROW)
        return frame.select(*self._computed, _ROW)

    def _assemble(self, through: pa.RecordBatch, frame: pl.DataFrame | None) -> pa.RecordBatch:
        """`frame`: None if nothing is computed."""
        columns = [
            through.column(self._through[field.name])
            if frame is None or field.name in self._through
            else frame[field.name].to_arrow().cast(field.type)
            for field in self._schema
        ]
        if not columns:
            return through.select([])
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def frame_of(batch: pa.RecordBatch, columns: set[str]) -> pl.DataFrame:
    """These columns for polars; without any a frame of as many rows."""
    if not columns:  # keep the number of rows
        return pl.DataFrame({_ROW: pl.int_range(batch.num_rows, eager=True)})
    frame = pl.from_arrow(batch.select(sorted(columns)))
    assert isinstance(frame, pl.DataFrame)
    return frame


def passed_on(column: str | None, expressions: Iterable[tuple[str, pl.Expr]]) -> str | None:
    """The name under which a column goes on as it is; None: it does not."""
    for name, expression in expressions:
        plain = expression.meta.undo_aliases()
        if plain.meta.is_column() and plain.meta.output_name() == column:
            return name
    return None


def _passed_through(steps: Sequence[Step], outputs: Sequence[str]) -> dict[str, str]:
    """Output columns that are input columns as they are, and which."""
    lineage = {name: name for name in outputs}
    for step in reversed(steps):
        if isinstance(step, Columns):
            by_name = dict(step.expressions)
            lineage = {
                out: by_name[name].meta.root_names()[0]
                for out, name in lineage.items()
                if by_name[name].meta.undo_aliases().meta.is_column()
            }
    return lineage


def rows_where(condition: pl.Expr, columns: Mapping[str, Any], rows: int) -> Mask:
    """The rows for which a condition over these columns is true; false and null are not."""
    frame = pl.DataFrame(dict(columns) or {"_": np.zeros(rows)})
    mask = frame.select(condition.fill_null(False).alias("_"))["_"].to_numpy()
    return np.broadcast_to(mask, rows) if len(mask) != rows else np.asarray(mask)
