"""Buckets: which folder a row goes to, by columns, by time, by an expression or by a function.

Folders are named as Hive does, and Spark, DuckDB, Arrow and polars read:
`country=de/date=2026-03-01/hour=07`.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import Fatal, GraphError, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import Records

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r'[\x00-\x1f"#%\'*/:=?\\\x7f{\[\]^]')
_PATH = re.compile(r"[^/._][^/]*(/[^/._][^/]*)*")
_BUCKETS_MAX = 10_000
"""More in one batch are taken for a mistake: a column that has another value in each row."""
BucketFunction = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class TimeBuckets:
    """Spans of time, by the event time of rows, or by a column of ms since the epoch or of timestamps.
    `pattern`: the folder of a span, as strftime has it, of its beginning in UTC."""

    size_ms: int
    pattern: str
    column: str | None = None


@explained
def hourly(column: str | None = None, pattern: str = "date=%Y-%m-%d/hour=%H") -> TimeBuckets:
    """A folder for each hour."""
    return every("1 h", column, pattern)


@explained
def daily(column: str | None = None, pattern: str = "date=%Y-%m-%d") -> TimeBuckets:
    """A folder for each day."""
    return every("1 d", column, pattern)


@explained
def every(
    duration: str | int, column: str | None = None, pattern: str = "date=%Y-%m-%d/time=%H-%M-%S"
) -> TimeBuckets:
    """A folder for each span of so long, such as "15 min". `column`: what says a row's time, None: its event
    time. Raises OptionError."""
    size_ms = duration_ms(duration, "duration")
    if not size_ms:
        raise OptionError(f"every({duration!r}): a span of time has to be longer than 0")
    _check_path(dt.datetime(2000, 1, 1).strftime(pattern), f"pattern={pattern!r}", OptionError)
    return TimeBuckets(size_ms, pattern, column)


class Bucket(NamedTuple):
    """Rows of one folder."""

    folder: str
    """Below the folder of the sink; "": that itself."""
    batch: pa.RecordBatch
    span: tuple[str, int] | None
    """The folder of its span of time, and the watermark at which that is complete; None: it has none."""


@dataclass(frozen=True)
class Buckets:
    """Immutable and picklable. `by`: what the levels of folders are made of, in this order."""

    by: Sequence[str | TimeBuckets | pl.Expr | BucketFunction]

    @property
    def has_spans(self) -> bool:
        return any(isinstance(each, TimeBuckets) for each in self.by)

    @cached_property
    def columns(self) -> frozenset[str]:
        """Columns that are in the names of folders, and so not in the files."""
        return frozenset(each for each in self.by if isinstance(each, str))

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raises GraphError, which begins with `where`."""
        named = [each if isinstance(each, str) else getattr(each, "column", None) for each in self.by]
        for name in named:
            if name is not None and name not in schema.names:
                raise GraphError(
                    f"{where}: partition_by names column {name!r}, which is not in the rows"
                    f"{nearest(name, schema.names)}"
                )
        for name in self.columns:
            if pa.types.is_nested(schema.field(name).type) or name.startswith((".", "_")):
                raise GraphError(
                    f"{where}: partition_by={name!r}: no folder can be called after it: it is "
                    f'{schema.field(name).type}, or begins with "." or "_", as what is hidden does'
                )
        if not self.file_schema(schema).names:
            raise GraphError(
                f"{where}: partition_by has all columns, and none is left for the files: leave one out"
            )

    def file_schema(self, schema: pa.Schema) -> pa.Schema:
        """The columns of the files, with what is noted beside the schema."""
        return pa.schema([field for field in schema if field.name not in self.columns], schema.metadata)

    def split(self, records: Records) -> Iterator[Bucket]:
        """The rows of each folder, in their order. Raises Fatal."""
        if not self.by:
            yield Bucket("", records.batch, None)
            return
        levels = [self._level(each, records) for each in self.by]
        codes = levels[0].codes
        for level in levels[1:]:
            codes = codes * len(level.folders) + level.codes
        found, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
        if len(found) > _BUCKETS_MAX:
            raise Fatal(
                f"partition_by makes {len(found):,} folders of one batch of rows: at most {_BUCKETS_MAX:,} "
                "are meant to be; take a column with fewer values, or a span of time"
            )
        batch = records.batch.select(self.file_schema(records.batch.schema).names)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse, minlength=len(found)))
        for n, row in enumerate(first.tolist()):
            begin = int(ends[n - 1]) if n else 0
            rows = order[begin : int(ends[n])]
            yield self._bucket(batch if len(found) == 1 else batch.take(pa.array(rows)), levels, row)

    def _bucket(self, batch: pa.RecordBatch, levels: Sequence[_Level], row: int) -> Bucket:
        path: list[str] = []
        span: tuple[str, int] | None = None
        for level in levels:
            code = int(level.codes[row])
            path.append(level.folders[code])
            if level.ends_ms is not None:
                span = ("/".join(path), level.ends_ms[code])
        return Bucket("/".join(path), batch, span)

    def _level(self, by: str | TimeBuckets | pl.Expr | BucketFunction, records: Records) -> _Level:
        if isinstance(by, str):
            return _named_level(by, records.batch.column(by))
        if isinstance(by, TimeBuckets):
            return _time_level(by, records)
        if isinstance(by, pl.Expr):
            frame = pl.DataFrame(pl.from_arrow(records.batch)).select(by)
            return _named_level(frame.columns[0], _whole(frame.to_arrow().column(0)))
        return _function_level(by, records.batch)


class _Level(NamedTuple):
    """One level of folders: which of `folders` each row goes to."""

    codes: npt.NDArray[np.int64]
    folders: Sequence[str]
    ends_ms: Sequence[int] | None = None


def buckets(given: Any, where: str) -> Buckets:
    """What is given as partition_by. Raises OptionError, which begins with `where`."""
    one_by_one = given if isinstance(given, list | tuple) else [] if given is None else [given]
    for each in one_by_one:
        if isinstance(each, str | TimeBuckets | pl.Expr) or (callable(each) and not isinstance(each, type)):
            continue
        raise OptionError(
            f"{where}: partition_by={each!r}: give a column's name, hourly(), daily() or every(...), a "
            "polars expression, a function of a pyarrow.RecordBatch, or a list of these"
        )
    return Buckets(tuple(one_by_one))


def _named_level(name: str, values: pa.Array) -> _Level:
    codes, texts = _encoded(values)
    return _Level(codes, [f"{_escaped(name)}={_NULL if t is None else _escaped(t)}" for t in texts])


def _time_level(by: TimeBuckets, records: Records) -> _Level:
    times_ms = records.event_time if by.column is None else _ms(records.batch.column(by.column), by.column)
    if times_ms is None:
        raise Fatal(
            "partition_by has hourly(), daily() or every(...) of event time, and the rows have none: give "
            'the source watermarks=, or name a column, as in hourly("ts")'
        )
    spans, codes = np.unique(np.floor_divide(times_ms, by.size_ms), return_inverse=True)
    begins = [dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=n * by.size_ms) for n in spans.tolist()]
    ends_ms = [(n + 1) * by.size_ms - 1 for n in spans.tolist()]
    return _Level(codes.astype(np.int64), [begin.strftime(by.pattern) for begin in begins], ends_ms)


def _function_level(function: BucketFunction, batch: pa.RecordBatch) -> _Level:
    given = function(batch)
    values = _whole(given) if isinstance(given, pa.ChunkedArray) else pa.array(given)
    if len(values) != batch.num_rows:
        raise Fatal(
            f"the function of partition_by made {len(values)} folders of {batch.num_rows} rows: "
            "make one for each"
        )
    codes, texts = _encoded(values)
    for text in texts:
        _check_path(text, "the function of partition_by", Fatal)
    return _Level(codes, [str(text) for text in texts])


def _ms(values: pa.Array, name: str) -> npt.NDArray[np.int64]:
    if values.null_count:
        raise Fatal(f"column {name!r}, which says the folder of a row by its time, is null in a row")
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("ms"), safe=False)
    return np.asarray(values.cast(pa.int64()), np.int64)


def _encoded(values: pa.Array) -> tuple[npt.NDArray[np.int64], list[str | None]]:
    encoded = pc.dictionary_encode(values, null_encoding="encode")
    texts = encoded.dictionary.cast(pa.string()) if len(encoded.dictionary) else pa.array([], pa.string())
    return np.asarray(encoded.indices, np.int64), texts.to_pylist()


def _whole(values: pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks()
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def _escaped(text: str) -> str:
    """The text as Hive and Spark write it in the name of a folder."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text) or _NULL


def _check_path(path: str | None, what: str, error: type[Exception]) -> None:
    if path is None or not _PATH.fullmatch(path):
        raise error(
            f'{what} gives the folder {path!r}: write names with "/" between them, none of which begins with '
            '"." or "_", as what is hidden does'
        )
