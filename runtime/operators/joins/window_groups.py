"""CoGroup: the user's code for all rows of two streams with the same key in the same window."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT
from onceflow.runtime.operators.joins.window_sides import EndedWindows, groups
from onceflow.runtime.records import Indices, Records
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name, read_records, user_error_at

Left = TypeVar("Left")
Right = TypeVar("Right")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """What a CoGroup is told of the rows that it gets."""

    key: Any
    """The column's value; a tuple if there are several key columns."""
    start: int
    end: int
    """The first ms behind the window."""


class CoGroup(Generic[Left, Right, Out]):
    """The user's class for `a.key_by(k).co_group(b.key_by(k), window, YourCoGroup())`: CoGroup[L, R, O]."""

    def group(self, left: list[Left], right: list[Right], window: GroupWindow, /) -> Iterable[Out] | None:
        """Called once for each key and window with all rows of both sides, one of which may have none. Yields
        records, or returns an iterable or None; they get the last ms of the window as event time."""
        raise NotImplementedError


@dataclass(frozen=True)
class GroupConfig:
    """A CoGroup, checked when the graph is built: what makes its records, and columns of what it makes."""

    uid: str
    function: CoGroup[Any, Any, Any]
    readers: tuple[RecordReader, RecordReader]
    writer: RecordWriter


class WindowGroups:
    """Calls a CoGroup with windows that have ended. Whoever has it opens `function` before the first one."""

    def __init__(self, config: GroupConfig, keys: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        self.function = own_instance(config.function, config.uid)
        self._config = config
        self._keys = keys

    def of(
        self, ended: EndedWindows, bounds: Callable[[int], tuple[int, int]]
    ) -> tuple[pa.RecordBatch, Indices] | None:
        """The records that are made of each key and window, and the number in `ended.rows` of what each was
        made of; None: there are none. `bounds`: start and end of the window of such a number. Raises
        UserFunctionError."""
        config = self._config
        sides = [
            read_records(config.uid, reader, Records(batch))
            for reader, batch in zip(config.readers, ended.batches, strict=True)
        ]
        made: list[Any] = []
        counts: list[int] = []
        group = self.function.group
        for number, (left, right) in enumerate(groups(ended)):
            of, before = LEFT if len(left) else RIGHT, len(made)
            key = self._key(of, ended.batches[of], int((left if of == LEFT else right)[0]))
            window = GroupWindow(key, *bounds(number))
            rows = [[side[n] for n in its.tolist()] for side, its in zip(sides, (left, right), strict=True)]
            try:
                made.extend(group(rows[0], rows[1], window) or ())
            except Exception as error:
                place = f"key {key!r} in the window from {window.start} to {window.end}"
                raise user_error_at(config.uid, group, error, place) from error
            counts.append(len(made) - before)
        return (self._written(made), np.repeat(np.arange(len(counts)), counts)) if made else None

    def _written(self, made: list[Any]) -> pa.RecordBatch:
        try:
            return self._config.writer.write(made)
        except WrongFieldError as error:
            raise UserFunctionError(
                f"operator {self._config.uid!r}: {function_name(self.function.group)} made a wrong record: "
                f"{error}"
            ) from error

    def _key(self, side: int, batch: pa.RecordBatch, row: int) -> Any:
        values = [batch.column(name)[row].as_py() for name in self._keys[side]]
        return values[0] if len(values) == 1 else tuple(values)
