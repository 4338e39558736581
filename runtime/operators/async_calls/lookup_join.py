"""LookupRows: the rows of a look-up join, made of the left rows and of what was found for their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.contracts.lookup import Lookup
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.functions.questions import Calls
from onceflow.runtime.operators.async_calls.calls_in_flight import Call
from onceflow.runtime.operators.async_calls.frozen_calls import rows_of
from onceflow.runtime.operators.async_calls.lookup_cache import LookupCache
from onceflow.runtime.operators.async_calls.lookup_calls import LookupCalls
from onceflow.runtime.operators.expressions import rows_where
from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.records import Records
from onceflow.runtime.types.user_functions import function_name


@dataclass(frozen=True)
class LookupJoin:
    """A look-up join, checked when the graph is built. `passes`: the output columns, and which column of the
    left rows (0) or of what is found (1) each is."""

    uid: str
    lookup: Lookup
    schema: pa.Schema
    passes: Mapping[str, tuple[int, str]]
    is_left: bool
    capacity: int
    cache: tuple[int, int] | None
    """The most keys, and for how many ms they are kept."""
    where: pl.Expr | None = None
    """What has to be true of a left row and of what is found for it, over the output columns."""


class KeyReader:
    """Makes of each row its key, a tuple; None if a part of it is null, since it equals no other."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self.type_name = "the key"

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        keys = zip(*(batch.column(name).to_pylist() for name in self._columns), strict=True)
        return [None if None in key else key for key in keys]


class LookupRows:
    """What an AsyncOperator asks and sends for a look-up join."""

    def __init__(self, config: LookupJoin) -> None:
        self._config = config
        self.function = own_instance(config.lookup.look_up, config.uid)

    def calls(self, context: OperatorContext) -> Calls:
        config, cache = self._config, None
        if config.cache is not None:
            cache = LookupCache(*config.cache, context.clock.monotonic_ms)
        requests = context.calls(self.function, config.capacity)
        return LookupCalls(requests, config.lookup.keys_at_once, cache)

    def rows(self, answered: Sequence[Call]) -> Records | None:
        config = self._config
        left = rows_of(answered)
        assert left is not None, "one call at least"
        pairs = [(n, row) for n, call in enumerate(answered) for row in call.result or ()]
        if config.where is not None and pairs:
            batch = self._batch(left.batch, pairs)
            holds = rows_where(
                config.where, dict(zip(batch.schema.names, batch.columns, strict=True)), len(pairs)
            )
            pairs = [pair for pair, is_kept in zip(pairs, holds.tolist(), strict=True) if is_kept]
        if config.is_left:
            alone = set(range(len(answered))) - {n for n, _ in pairs}
            pairs = sorted([*pairs, *((n, None) for n in alone)], key=lambda pair: pair[0])
        if not pairs:
            return None
        at = np.array([n for n, _ in pairs], np.int64)
        times = None if left.event_time is None else left.event_time[at]
        return Records(self._batch(left.batch, pairs), times)

    def _batch(self, left: pa.RecordBatch, pairs: Sequence[tuple[int, Any]]) -> pa.RecordBatch:
        """Left rows by their number, each with a row that was found, or None."""
        config = self._config
        at, found = pa.array([n for n, _ in pairs]), [row for _, row in pairs]
        columns = [
            left.column(name).take(at) if of == 0 else self._column(found, name, field)
            for field, (of, name) in zip(config.schema, config.passes.values(), strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=config.schema)

    def _column(self, found: Sequence[Any], name: str, field: pa.Field) -> pa.Array:
        try:
            return pa.array([None if row is None else row[name] for row in found], field.type)
        except (KeyError, TypeError, pa.ArrowException) as error:
            raise UserFunctionError(
                f"operator {self._config.uid!r}: {function_name(self.function)} found rows whose column "
                f"{name!r} is not there, or no {field.type}: {error}"
            ) from error
