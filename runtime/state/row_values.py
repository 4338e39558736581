"""RowValues: Python values by the row of their key, with their way into a snapshot and back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import OnceflowError, UsageError, UserFunctionError
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices
from onceflow.runtime.state.table import Frozen, LiveRows
from onceflow.runtime.types.columns_of_records import WrongFieldError, array_from_values
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.records_of_columns import reason_of, values_from_array
from onceflow.runtime.types.value_types import ListOf, MapOf, ValueType


class Codec(Protocol):
    """One kind of state as a column: null for a key that remembers nothing."""

    @property
    def field(self) -> pa.Field: ...

    @property
    def reads(self) -> ValueType:
        """The type of what is kept."""
        ...

    @property
    def is_immutable(self) -> bool:
        """Whether a value, or what is in a list or map, stays as it is whatever the user's code does."""
        ...

    def to_arrow(self, values: list[Any]) -> pa.Array:
        """Raises UserFunctionError for a value that is not of the declared type."""
        ...

    def from_arrow(self, column: pa.Array) -> list[Any]: ...


class Cursor:
    """The row of the current key, and the time. Shared by all states of one operator subtask."""

    __slots__ = ("clock_ms", "event_ms", "passed_ms", "row")

    def __init__(self) -> None:
        self.row = -1
        self.event_ms = WATERMARK_MIN_MS
        """The event time at which the current record or timer comes, by which values expire."""
        self.passed_ms = WATERMARK_MIN_MS
        """None comes at an earlier event time from now on."""
        self.clock_ms = WATERMARK_MIN_MS
        """What the clock showed when the batch or the snapshot began."""


class NoKey:
    """Stands in a Cursor where a row would, while there is no key: state and timers are refused by name."""

    def __init__(self, refuse: Callable[[], NoReturn]) -> None:
        """`refuse` raises the error that says so."""
        self._refuse = refuse

    def __index__(self) -> int:
        self._refuse()


class RowValues:
    """One state of one operator subtask: a value by row, None where nothing is remembered."""

    def __init__(self, codec: Codec, cursor: Cursor) -> None:
        self.codec = codec
        self.cursor = cursor
        self.values: list[Any] = []
        self._owned: set[int] = set()
        """Rows whose value was copied since the last snapshot, or made."""

    def grow(self, size: int) -> None:
        """Have this many rows."""
        self.values.extend([None] * (size - len(self.values)))

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        values = self.values
        self.values = [values[row] for row in rows.tolist()]
        self._owned.clear()

    def clear(self, rows: Indices) -> None:
        for row in rows.tolist():
            self.values[row] = None

    def forget(self, row: int) -> None:
        """Have nothing in this row."""
        self.values[row] = None

    def own(self, row: int) -> Any:
        """The row's value, to be changed in place: until the next snapshot no other has it."""
        value = self.values[row]
        if row not in self._owned:
            self._owned.add(row)
            value = self.values[row] = copy.copy(value)
        return value

    def save(self, row: int) -> Any:
        """The row's value as it is now, whatever is done to the row until `bring_back`."""
        self._owned.discard(row)  # so the next change of a list or map is one of a copy
        value = self.values[row]
        return value if self.codec.is_immutable else copy.deepcopy(value)

    def bring_back(self, row: int, saved: Any) -> None:
        """Undo what was done to the row since `save`."""
        self._owned.discard(row)
        self.values[row] = saved

    def freeze(self, live: LiveRows) -> Frozen:
        """What is in the rows now: values that only `own` changes are shared with the snapshot, and become
        Arrow when it is written; values that the user's code could change become Arrow at once."""
        codec, values = self.codec, self._as_they_are(live)
        self._owned.clear()
        if codec.is_immutable:
            return lambda rows: codec.to_arrow(values(rows))
        of = live.all()
        column = codec.to_arrow(values(of))
        return lambda rows: column.take(pa.array(np.searchsorted(of, rows)))

    def _as_they_are(self, live: LiveRows) -> Callable[[Indices], list[Any]]:
        """Gives what is in some of these rows now, later and on any thread."""
        return live.copied(self.values)

    def load(self, rows: Indices, column: pa.Array) -> None:
        for row, value in zip(rows.tolist(), self.codec.from_arrow(column), strict=True):
            self.values[row] = value


class DeclaredStates:
    """The states of one operator as a column of its table: a struct with a field for each."""

    def __init__(self, states: Mapping[str, RowValues]) -> None:
        self._states = states

    def grow(self, size: int) -> None:
        for state in self._states.values():
            state.grow(size)

    def clear(self, rows: Indices) -> None:
        for state in self._states.values():
            state.clear(rows)

    def keep(self, rows: Indices) -> None:
        for state in self._states.values():
            state.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen:
        frozen = {name: state.freeze(live) for name, state in self._states.items()}

        def struct(rows: Indices) -> pa.Array:
            arrays = {name: values(rows) for name, values in frozen.items()}
            fields = [pa.field(name, array.type) for name, array in arrays.items()]
            return pa.StructArray.from_arrays(list(arrays.values()), fields=fields)

        return struct

    def load(self, rows: Indices, values: pa.Array) -> None:
        """A state that is new remembers nothing yet; one that is gone was allowed to be dropped."""
        for name, state in self._states.items():
            if values.type.get_field_index(name) >= 0:
                state.load(rows, values.field(name))

    def save(self, row: int) -> list[Any]:
        """What is remembered for it, for `bring_back`."""
        return [state.save(row) for state in self._states.values()]

    def bring_back(self, row: int, saved: list[Any]) -> None:
        """Undo what was done since `save`."""
        for state, value in zip(self._states.values(), saved, strict=True):
            state.bring_back(row, value)

    def is_empty(self, row: int) -> bool:
        """Whether nothing is remembered for it."""
        return all(state.values[row] is None for state in self._states.values())

    def empty_of(self, rows: list[int]) -> list[int]:
        """Return those of these rows for which nothing is remembered."""
        for state in self._states.values():
            values = state.values
            rows = [row for row in rows if values[row] is None]
        return rows


class OutsideError(UsageError):
    """A state was used where there is no current key."""


class Outside(RowValues):
    """Stands in until an operator runs: any use is refused by name."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec, Cursor())
        self.values = _Refusing(codec.field.name)


class _Refusing(list[Any]):
    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def _refuse(self, *_: Any) -> Any:
        raise OutsideError(
            f"state {self._name!r} is there only inside process() and on_timer() of a running job"
        )

    __getitem__ = __setitem__ = _refuse


class ValueCodec:
    """A value of one type."""

    def __init__(self, name: str, python_type: Any, nullable: bool = True) -> None:
        self.type = describe_type(python_type, f"state {name!r}")
        self.reads = self.type
        self.field = pa.field(name, self.type.arrow, nullable)
        self.is_immutable = self.type.is_single

    def to_arrow(self, values: list[Any]) -> pa.Array:
        try:
            return array_from_values(values, self.field, self.type)
        except WrongFieldError as error:
            found = str(error).replace("field", "state", 1)
            raise UserFunctionError(f"{found} (found when the checkpoint was taken)") from error

    def from_arrow(self, column: pa.Array) -> list[Any]:
        try:
            return values_from_array(column, self.type)
        except OnceflowError:
            raise
        except Exception as error:  # whatever a class of the user's raises
            raise UserFunctionError(
                f"state {self.field.name!r}, as the checkpoint has it: {reason_of(error)}"
            ) from error


class ListCodec:
    """A list of values of one type."""

    def __init__(self, name: str, python_type: Any, item: Codec | None = None) -> None:
        """`item`: how one of them is kept, if not as columns."""
        self._item: Codec = item or ValueCodec(name, python_type, nullable=False)
        self.field = pa.field(name, pa.list_(self._item.field.with_name("item")))
        self.is_immutable = self._item.is_immutable
        self.reads = ValueType(self.field.type, True, self.is_immutable, ListOf(self._item.reads, "list"))

    def to_arrow(self, values: list[Any]) -> pa.Array:
        flat = self._item.to_arrow([item for items in values if items for item in items])
        return _lists(flat, values, self.field.type)

    def from_arrow(self, column: pa.Array) -> list[Any]:
        flat = iter(self._item.from_arrow(column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [None if n is None else [next(flat) for _ in range(n)] for n in lengths]


class MapCodec:
    """A dictionary: a list of its entries."""

    def __init__(self, name: str, key_type: Any, value_type: Any, value: Codec | None = None) -> None:
        """`value`: how one is kept, if not as columns."""
        self._key = ValueCodec(name, key_type, nullable=False)
        self._value: Codec = value or ValueCodec(name, value_type, nullable=False)
        self._entry = [self._key.field.with_name("key"), self._value.field.with_name("value")]
        self.field = pa.field(name, pa.list_(pa.field("item", pa.struct(self._entry), nullable=False)))
        self.is_immutable = self._value.is_immutable
        entries = MapOf(self._key.type, self._value.reads)
        self.reads = ValueType(self.field.type, True, self.is_immutable, entries)

    def to_arrow(self, values: list[Any]) -> pa.Array:
        maps = [entries for entries in values if entries]
        keys = self._key.to_arrow([key for entries in maps for key in entries])
        items = self._value.to_arrow([item for entries in maps for item in entries.values()])
        return _lists(pa.StructArray.from_arrays([keys, items], fields=self._entry), values, self.field.type)

    def from_arrow(self, column: pa.Array) -> list[Any]:
        flat = column.flatten()
        keys, items = self._key.from_arrow(flat.field("key")), self._value.from_arrow(flat.field("value"))
        pairs = zip(keys, items, strict=True)
        lengths = column.value_lengths().to_pylist()
        return [None if n is None else dict(next(pairs) for _ in range(n)) for n in lengths]


def _lists(flat: pa.Array, values: list[Any], arrow: pa.DataType) -> pa.Array:
    """A list for each of `values` over their items, which lie end to end; None is a null list."""
    offsets: list[int | None] = []
    end = 0
    for items in values:
        offsets.append(None if items is None else end)
        end += 0 if items is None else len(items)
    return pa.ListArray.from_arrays(pa.array([*offsets, end], pa.int32()), flat, type=arrow)
