"""GeneratorSource: made-up records at a rate, for demonstrations, tests and measurements."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from onceflow.connectors.collections.fixed_splits import FixedSplits
from onceflow.connectors.collections.python_rows import RowType, row_type
from onceflow.connectors.generator.batches import GeneratorPlanner
from onceflow.connectors.generator.random_columns import RandomColumns
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Fetch, Json, ReaderContext, SplitState
from onceflow.runtime.durations import rate_per_s
from onceflow.runtime.errors import GraphError, OptionError, UserFunctionError
from onceflow.runtime.records import Int64s
from onceflow.runtime.types.columns_of_records import WrongFieldError
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.user_functions import function_name, user_error_at

SPLITS = 4
"""How many slots can share the work."""
PER_S_WITHOUT_RATE = 1_000
"""How many records are in a second of event time if no rate is asked for."""


class Maker(Protocol):
    """Makes records of their numbers."""

    def batch(self, numbers: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns of the records with these numbers."""
        ...


@dataclass(frozen=True)
class FunctionRows:
    """A Maker: the user's function of a number."""

    function: Callable[[int], Any]
    rows: RowType

    def batch(self, numbers: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        made: list[Any] = []
        who = f"source: {function_name(self.function)}"
        try:
            for number in numbers.tolist():
                made.append(self.function(number))
        except Exception as error:
            place = f"record {int(numbers[len(made)])}"
            raise user_error_at("data_generator", self.function, error, place) from error
        try:
            return self.rows.batch(made).select(columns)
        except WrongFieldError as error:
            record = f"record {int(numbers[error.row])}"
            raise UserFunctionError(f"{who} made {record}: {error}", who, str(error), record) from error


@dataclass(frozen=True)
class GeneratorSource:
    """A Source, a ProjectableSource and a BatchedSource. Record n is the same whoever makes it and whenever.

    Split s of `splits` has the records s, s + splits, and so on. `count` None: endless. `rate`: of all splits
    together, in records per second; None: as fast as they are taken.
    """

    maker: Maker
    all_columns: pa.Schema
    record_type: type | None = None
    rate: float | None = None
    count: int | None = None
    splits: int = SPLITS
    columns: frozenset[str] | None = None
    """The columns that are made; None: all."""

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f for f in self.all_columns if self.columns is None or f.name in self.columns])

    @property
    def is_bounded(self) -> bool:
        return self.count is not None

    def project(self, columns: frozenset[str]) -> GeneratorSource:
        return replace(self, columns=columns)

    def open_planner(self, clock: Clock, limit: BatchLimit) -> GeneratorPlanner:
        """See BatchedSource."""
        return GeneratorPlanner(self.splits, self.rate, self.count, clock, limit)

    def open_enumerator(self, job: str, clock: Clock) -> FixedSplits:
        return FixedSplits([_Split(number, self.splits).state() for number in range(self.splits)])

    def open_reader(self, context: ReaderContext) -> GeneratorReader:
        return GeneratorReader(self, context)


@dataclass(frozen=True, slots=True)
class _Split:
    """Every `of`-th record from `number` on; `made` of them were read."""

    number: int
    of: int
    made: int = 0
    stop: int | None = None
    """The split ends when so many of them were read. None: it has as many as the source."""

    def state(self) -> SplitState:
        position: dict[str, Json] = {"number": self.number, "of": self.of, "made": self.made}
        if self.stop is not None:
            position["stop"] = self.stop
        return SplitState(f"{self.number}-of-{self.of}", position)


class GeneratorReader:
    """A SourceReader and a PausableReader. Makes records of one split after the other."""

    def __init__(self, source: GeneratorSource, context: ReaderContext) -> None:
        self._source = source
        self._clock = context.clock
        self._with_origin = context.with_origin
        self._names = source.schema.names
        self._splits: dict[str, _Split] = {}
        self._began: dict[str, tuple[float, int]] = {}
        """When a split was added, in ms, and how many records it had made by then."""
        self._paused: frozenset[str] = frozenset()
        self._turns: list[str] = []
        """Splits that are not at their end; the next one is asked first."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for state in splits:
            split = _Split(**state.position)
            self._splits[state.split_id] = split
            self._began[state.split_id] = self._clock.monotonic_ms(), split.made
            self._turns.append(state.split_id)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        for _ in range(len(self._turns)):
            split_id = self._turns.pop(0)
            if split_id in self._paused:
                self._turns.append(split_id)
                continue
            split = self._splits[split_id]
            left = self._left(split)
            count = min(records_max, self._due(split_id, split), left)
            if count < left:
                self._turns.append(split_id)
            if count or not left:
                return self._make(split_id, split, count, is_last=count == left)
        return None

    def _left(self, split: _Split) -> int:
        """How many records the split still has."""
        count = self._source.count
        if split.stop is not None:
            return split.stop - split.made
        return 1 << 62 if count is None else max(0, -(-(count - split.number) // split.of) - split.made)

    def _due(self, split_id: str, split: _Split) -> int:
        """How many records the rate allows now."""
        if self._source.rate is None or split.stop is not None:
            return 1 << 62
        began_ms, made_before = self._began[split_id]
        seconds = (self._clock.monotonic_ms() - began_ms) / 1_000
        return int(seconds * self._source.rate / split.of) + 1 - (split.made - made_before)

    def _make(self, split_id: str, split: _Split, count: int, is_last: bool) -> Fetch:
        numbers = split.number + split.of * np.arange(split.made, split.made + count, dtype=np.int64)
        batch = self._source.maker.batch(numbers, self._names)
        self._splits[split_id] = replace(split, made=split.made + count)
        finished: frozenset[str] = frozenset({split_id}) if is_last else frozenset()
        offset = numbers if self._with_origin else None
        return Fetch(batch, np.zeros(count, np.uint16), (split_id,), offset, finished=finished)

    def snapshot(self) -> Sequence[SplitState]:
        return [split.state() for split in self._splits.values()]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader. With a rate they have to make up for it."""
        self._paused |= frozenset(split_ids)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        self._paused -= frozenset(split_ids)

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody monitors made-up records."""

    def close(self) -> None:
        """Nothing is open."""


def generator_source(
    of: Any,
    rate: str | float | None,
    count: int | None,
    seed: int,
    fields: Mapping[str, Any] | None,
    event_time: str | None,
) -> GeneratorSource:
    """The source of `job.data_generator(...)`. Raises GraphError and OptionError."""
    where = "job.data_generator(...)"
    per_s = None if rate is None else rate_per_s(rate, f"{where}: rate")
    if count is not None and not (isinstance(count, int) and count >= 0):
        raise OptionError(f"{where}: count={count!r}: it is a number of records")
    if not isinstance(of, pa.Schema | type) and callable(of):
        if fields:
            raise OptionError(f"{where}: fields= is for a type: a function says itself what it makes")
        made = row_type(_returned(of, where), where)
        return GeneratorSource(FunctionRows(of, made), made.schema, made.record_type, per_s, count)
    if not isinstance(of, pa.Schema) and not is_record_type(of):
        raise GraphError(
            f"{where}: type={of!r}: give a dataclass, a NamedTuple, a pyarrow.Schema, or a function of the "
            "record's number that makes a record"
        )
    made = row_type(of, where)
    said = {} if event_time is None or event_time not in made.schema.names else {event_time: "time"}
    columns = RandomColumns(
        made.schema, seed, per_s or PER_S_WITHOUT_RATE, {**said, **(fields or {})}, made.record
    )
    columns.check(where)
    return GeneratorSource(columns, made.schema, made.record_type, per_s, count)


def _returned(function: Callable[..., Any], where: str) -> Any:
    try:
        found = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        found = None
    if found is None:
        raise GraphError(
            f"{where}: what {function_name(function)} makes is not known before it runs: write `-> YourType`"
        )
    return found
