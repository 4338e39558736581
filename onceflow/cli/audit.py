"""The auditor's judgement: recomputes windowed totals from the input and compares the output with them.

It shares no code with the engine, so that both can't be wrong in the same way: JSON by msgspec,
grouping by polars, nothing of onceflow.runtime but the error to raise. Pure: it is fed chunks of raw
records and reads nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import polars as pl

from onceflow.runtime.errors import UsageError

Number = int | float | None
_SAMPLES_MAX = 5
_PARTIAL_ROWS_MAX = 4_000_000
_ORIGIN = ("__partition", "__offset")


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Some records of one topic partition: value and offset of each. `reasons`: by offset, why a value that
    is None could not be decoded."""

    values: Sequence[bytes | None]
    partition: int
    offsets: Sequence[int]
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`field` of an output row is `function` (count, sum, min, max) of the input's `of`."""

    field: str
    function: str
    of: str | None = None


@dataclass(frozen=True, slots=True)
class WindowedTotals:
    """What the output should hold: one row for each group and tumbling window of event time.

    Only windows that end at or before `until_ms` are judged, if it is given: the others may be open.
    """

    group_by: tuple[str, ...]
    time: str
    window_ms: int
    window_end: str
    aggregates: tuple[Aggregate, ...]
    until_ms: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.group_by, self.window_end)


@dataclass(slots=True)
class Findings:
    """What is wrong with the output; `samples` name the first few of each kind."""

    missing: int = 0
    doubled: int = 0
    wrong: int = 0
    unreadable: int = 0
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.doubled or self.wrong or self.unreadable)

    def add(self, kind: str, count: int, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        setattr(self, kind, getattr(self, kind) + count)
        kept = self.samples.setdefault(kind, [])
        kept.extend(dict(row) for row in rows if len(kept) < _SAMPLES_MAX)
        del kept[_SAMPLES_MAX:]


class Columns:
    """Turns raw records into a frame of the wanted fields, with partition and offset of each row."""

    def __init__(self, scalars: Sequence[str], numbers: Sequence[str], times: Sequence[str]) -> None:
        types: dict[str, Any] = dict.fromkeys(scalars, str | int | float | bool | None)
        types |= dict.fromkeys(numbers, Number)
        types |= dict.fromkeys(times, int)
        self._fields = {name: pl.Int64() if name in times else pl.Null() for name in types}
        row = msgspec.defstruct(
            "Row", [(f"f{i}", kind, msgspec.field(name=name)) for i, (name, kind) in enumerate(types.items())]
        )
        self._decode_one = msgspec.json.Decoder(row).decode
        self._decode_all = msgspec.json.Decoder(list[row]).decode  # type: ignore[valid-type]

    def empty(self) -> pl.DataFrame:
        """The frame of no records: what a topic without any is judged as."""
        return self.frame(RawRecords((), 0, ()), Findings())

    def frame(self, raw: RawRecords, findings: Findings) -> pl.DataFrame:
        """Records that lack a field or have another type count as unreadable, and are named."""
        rows, offsets = self._rows(raw, findings)
        columns = {
            name: _series(name, [getattr(row, f"f{i}") for row in rows], if_empty)
            for i, (name, if_empty) in enumerate(self._fields.items())
        }
        origin = {
            _ORIGIN[0]: np.full(len(rows), raw.partition),
            _ORIGIN[1]: np.array(offsets, dtype=np.int64),
        }
        return pl.DataFrame({**columns, **origin})

    def _rows(self, raw: RawRecords, findings: Findings) -> tuple[list[Any], Sequence[int]]:
        """Decode all rows at once if all are readable; else one by one, to name those that are not."""
        with contextlib.suppress(msgspec.DecodeError, TypeError):
            rows = self._decode_all(b"[" + b",".join(raw.values) + b"]")  # type: ignore[arg-type]
            if len(rows) == len(raw.values):
                return rows, raw.offsets
        rows, offsets = [], []
        for value, offset in zip(raw.values, raw.offsets, strict=True):
            try:
                rows.append(self._decode_one(value or b""))
                offsets.append(offset)
            except msgspec.DecodeError as error:
                sample = {
                    "partition": raw.partition,
                    "offset": offset,
                    "reason": raw.reasons.get(offset, str(error)),
                }
                findings.add("unreadable", 1, [sample])
        return rows, offsets


class Totals:
    """Adds up the input, chunk by chunk, in memory bounded by the number of groups."""

    def __init__(self, spec: WindowedTotals, findings: Findings) -> None:
        self._spec = spec
        self._findings = findings
        sources = sorted({a.of for a in spec.aggregates if a.of is not None})
        self._columns = Columns(spec.group_by, sources, [spec.time])
        self._partials = [self._totals(RawRecords((), 0, ()))]

    def add(self, raw: RawRecords) -> None:
        self._partials.append(self._totals(raw))
        if sum(map(len, self._partials)) > _PARTIAL_ROWS_MAX:
            self._partials = [self._merged()]

    def _totals(self, raw: RawRecords) -> pl.DataFrame:
        frame = self._columns.frame(raw, self._findings)
        window = pl.lit(self._spec.window_ms, dtype=pl.Int64)
        end = ((pl.col(self._spec.time) // window) + 1) * window  # floor division: right before 1970 too
        frame = frame.with_columns(end.alias(self._spec.window_end))
        first = [_first_step(a).alias(a.field) for a in self._spec.aggregates]
        return frame.group_by(self._spec.key).agg(first)

    def expected(self) -> pl.DataFrame:
        """One row for each group and window that the input held a record of."""
        merged = self._merged()
        if self._spec.until_ms is not None:
            merged = merged.filter(pl.col(self._spec.window_end) <= self._spec.until_ms)
        return merged

    def _merged(self) -> pl.DataFrame:
        together = pl.concat(self._partials, how="vertical_relaxed")
        return together.group_by(self._spec.key).agg(_merge_step(a) for a in self._spec.aggregates)


def compare(expected: pl.DataFrame, output: pl.DataFrame, spec: WindowedTotals, findings: Findings) -> None:
    """Adds what is missing, doubled or wrong to the findings.

    A row for a group and window that should not exist is wrong; each further row for the same is
    doubled; each row with another number than expected is wrong, also when it is a doubled one.
    """
    if spec.until_ms is not None:
        output = output.filter(pl.col(spec.window_end) <= spec.until_ms)
    find_doubled(output, spec.key, findings)
    names = [a.field for a in spec.aggregates]
    wanted = expected.rename({name: f"expected {name}" for name in names})
    expected_keys, output = _same_key_types(wanted, output, spec.key)
    missing = expected_keys.join(output, on=spec.key, how="anti", nulls_equal=True)
    findings.add("missing", len(missing), missing.head(_SAMPLES_MAX).to_dicts())
    judged = output.join(expected_keys, on=spec.key, how="left", nulls_equal=True)
    right = pl.all_horizontal(_equal(judged, name) for name in names)
    wrong = judged.filter(~right)
    findings.add("wrong", len(wrong), wrong.head(_SAMPLES_MAX).to_dicts())


def find_doubled(output: pl.DataFrame, key: Sequence[str], findings: Findings) -> None:
    """Each row after the first with the same key is doubled."""
    groups = output.group_by(key).agg(pl.len().alias("rows"), *(pl.col(name).head(3) for name in _ORIGIN))
    repeated = groups.filter(pl.col("rows") > 1)
    findings.add(
        "doubled", int(repeated["rows"].sum()) - len(repeated), repeated.head(_SAMPLES_MAX).to_dicts()
    )


def find_gaps(output: pl.DataFrame, key: Sequence[str], sequence: str, findings: Findings) -> None:
    """Find holes: within each key (or overall) `sequence` must go from its lowest to its highest without a
    hole."""
    numbers = output.select(*key, sequence).unique()
    after = pl.col(sequence).shift(-1)
    after = after.over(key, order_by=sequence) if key else after
    gaps = numbers.sort(sequence).with_columns((after - 1).alias("to"), (pl.col(sequence) + 1).alias("from"))
    gaps = gaps.filter(pl.col("to") >= pl.col("from"))
    lost = int((gaps["to"] - gaps["from"] + 1).sum())
    findings.add("missing", lost, gaps.drop(sequence).head(_SAMPLES_MAX).to_dicts())


def compare_keys(source: pl.DataFrame, output: pl.DataFrame, key: Sequence[str], findings: Findings) -> None:
    """Each key must be in the output as often as in the input: fewer is missing, more is doubled."""
    wanted = source.group_by(key).agg(pl.len().cast(pl.Int64).alias("expected"))
    wanted, output = _same_key_types(wanted, output, key)
    found = output.group_by(key).agg(pl.len().cast(pl.Int64).alias("found"))
    both = wanted.join(found, on=key, how="full", coalesce=True, nulls_equal=True)
    both = both.with_columns(pl.col("expected", "found").fill_null(0))
    excess = pl.col("found") - pl.col("expected")
    for kind, rows in (
        ("missing", both.filter(excess < 0)),
        ("wrong", both.filter((excess > 0) & (pl.col("expected") == 0))),
        ("doubled", both.filter((excess > 0) & (pl.col("expected") > 0))),
    ):
        findings.add(kind, int(rows.select(excess.abs().sum()).item()), rows.head(_SAMPLES_MAX).to_dicts())


def _series(name: str, values: list[Any], if_empty: pl.DataType) -> pl.Series:
    """Integers stay exact at any size; integers mixed with fractions become fractions."""
    present = {type(value) for value in values if value is not None}
    if present == {int}:
        try:
            return pl.Series(values, dtype=pl.Int64)
        except (OverflowError, TypeError, pl.exceptions.PolarsError):
            return pl.Series(values, dtype=pl.Int128)
    if present == {int, float}:
        return pl.Series([None if value is None else float(value) for value in values], dtype=pl.Float64)
    if len(present) > 1:
        kinds = " and ".join(sorted(kind.__name__ for kind in present))
        raise UsageError(f"the field {name} holds {kinds} values: the auditor can't compare those")
    return pl.Series(values, dtype=None if present else if_empty)


def _first_step(aggregate: Aggregate) -> pl.Expr:
    if aggregate.function == "count":
        return pl.len().cast(pl.Int64)
    source = pl.col(aggregate.of or "")
    return {"sum": _wide(source).sum(), "min": source.min(), "max": source.max()}[aggregate.function]


def _merge_step(aggregate: Aggregate) -> pl.Expr:
    merge = {"count": pl.Expr.sum, "sum": pl.Expr.sum, "min": pl.Expr.min, "max": pl.Expr.max}
    return merge[aggregate.function](pl.col(aggregate.field))


def _wide(source: pl.Expr) -> pl.Expr:
    """Integers in 128 bits, so that a sum can't wrap around unseen."""
    return source.map_batches(lambda s: s.cast(pl.Int128) if s.dtype.is_integer() else s, is_elementwise=True)


def _same_key_types(
    left: pl.DataFrame, right: pl.DataFrame, key: Sequence[str]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """An empty or all-null column has no type of its own yet; differing types never match as text does."""
    for name in key:
        if left[name].dtype != right[name].dtype:
            empty = {frame[name].dtype for frame in (left, right)} & {pl.Null()}
            kind = left[name].dtype if right[name].dtype == pl.Null else right[name].dtype
            cast = pl.col(name).cast(kind if empty else pl.String)
            left, right = left.with_columns(cast), right.with_columns(cast)
    return left, right


def _equal(judged: pl.DataFrame, name: str) -> pl.Expr:
    found, wanted = pl.col(name), pl.col(f"expected {name}")
    if judged[name].dtype.is_float() or judged[f"expected {name}"].dtype.is_float():
        found, wanted = found.cast(pl.Float64), wanted.cast(pl.Float64)
        close = (found - wanted).abs() <= 1e-9 * pl.max_horizontal(found.abs(), wanted.abs(), pl.lit(1.0))
        return close.fill_null(False) | (found.is_null() & wanted.is_null())
    return found.cast(pl.Int128).eq_missing(wanted.cast(pl.Int128))
