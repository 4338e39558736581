"""A function of the user's as a Lookup: of one key, the record, records or None that it finds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from onceflow.runtime.functions.context import FunctionContext
from onceflow.runtime.functions.lives import life_of
from onceflow.runtime.types.columns_of_records import RecordWriter


class BlockingFunctionLookup:
    """A look-up by a function that blocks; it is called with the parts of the key."""

    keys_at_once = 1

    def __init__(self, function: Callable[..., Any], keys: Sequence[str], writer: RecordWriter) -> None:
        """`keys`: the key columns that its records have, too."""
        self._function = function
        self._writer = writer
        self.keys = keys

    @property
    def schema(self) -> pa.Schema:
        return self._writer.schema

    def open(self, ctx: FunctionContext) -> Any:
        life = life_of(self._function)
        return None if life is None or life.open is None else life.open(ctx)

    def close(self) -> Any:
        life = life_of(self._function)
        return None if life is None or life.close is None else life.close()

    def look_up(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], Sequence[Any]]:
        (key,) = keys
        return {key: _rows(self._function(*key), self._writer)}


class FunctionLookup(BlockingFunctionLookup):
    """The same by a coroutine function."""

    async def look_up(  # type: ignore[override]
        self, keys: Sequence[tuple[Any, ...]]
    ) -> Mapping[tuple[Any, ...], Sequence[Any]]:
        (key,) = keys
        found = self._function(*key)
        return {key: _rows(await found if inspect.isawaitable(found) else found, self._writer)}


def _rows(found: Any, writer: RecordWriter) -> Sequence[Any]:
    if found is None:
        return ()
    rows: Sequence[Any] = writer.write(found if isinstance(found, list) else [found]).to_pylist()
    return rows
