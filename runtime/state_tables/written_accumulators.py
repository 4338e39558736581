"""What reduces and windows keep of each row, checked before it is written: records, and accumulators."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.errors import UsageError
from onceflow.runtime.operators.windows.begun import BEGUN_BEFORE
from onceflow.runtime.state.description import RECORD, StateDescription, StatePart
from onceflow.runtime.state_tables.fitted_columns import check_nulls
from onceflow.runtime.state_tables.type_texts import type_of_text

_SKETCHES = ("approx_quantile", "approx_count_distinct")
_NO_TIME: Mapping[str, int] = {"first": (1 << 63) - 1, "last": -(1 << 63)}
"""The event time of a first or last value as long as there is none."""


def value_type(described: StateDescription) -> pa.DataType:
    """The type of the column `value`, as the description has it."""
    types = [(part.name, type_of_text(part.type)) for part in described.parts]
    return types[0][1] if described.parts[0].name == RECORD else pa.struct(types)


def check_values(values: pa.Array, described: StateDescription, old: pa.Array | None, where: str) -> None:
    """Raise UsageError for what the operator can't go on from. `values` have the base's types; `old`: the
    values that the base has."""
    if values.null_count:
        raise UsageError(f"{where} has a row without a value: leave the row out")
    first = described.parts[0]
    if first.name == RECORD:
        check_nulls(values, type_of_text(first.type), f"the value of {where}")
        return
    for part in described.parts:
        column, name = pc.struct_field(values, part.name), f"{part.name!r} of {where}"
        check = _CHECKS.get(part.kind, _any_value)
        known = None if old is None else pc.struct_field(old, part.name)
        check(column, known, part, name)
    if values.type.get_field_index(BEGUN_BEFORE) >= 0:
        flags = pc.struct_field(values, BEGUN_BEFORE)
        if flags.null_count or any(each.null_count for each in flags.flatten()):
            raise UsageError(f"{BEGUN_BEFORE!r} of {where} is null: give false for windows that begin now")


def _any_value(column: pa.Array, known: pa.Array | None, part: StatePart, name: str) -> None:
    """A sum, an extreme, or what a function of the user's keeps; null before the first value."""
    check_nulls(column, type_of_text(part.type), name)


def _count(column: pa.Array, known: pa.Array | None, part: StatePart, name: str) -> None:
    if column.null_count or (len(column) and pc.min(column).as_py() < 0):
        raise UsageError(f"{name} is null or negative, and it is a count: give a number from 0 on")


def _mean(column: pa.Array, known: pa.Array | None, part: StatePart, name: str) -> None:
    if column.null_count or any(each.null_count for each in column.flatten()):
        raise UsageError(
            f"{name} is null, and it is a sum and a count: give 0 and 0 if there is no value yet"
        )
    _count(pc.struct_field(column, "count"), None, part, f"the count in {name}")


def _outermost(column: pa.Array, known: pa.Array | None, part: StatePart, name: str) -> None:
    times, values = pc.struct_field(column, "event_time"), pc.struct_field(column, "value")
    no_time = _NO_TIME[part.kind]
    if column.null_count or times.null_count:
        raise UsageError(f"{name} has no event_time: give {no_time} and null if there is no value yet")
    is_without = times.to_numpy() == no_time
    if (is_without != values.is_null().to_numpy(zero_copy_only=False)).any():
        raise UsageError(
            f"{name} has a value without an event_time, or the other way round: give both, or {no_time} and "
            "null if there is no value yet"
        )


def _items(column: pa.Array, known: pa.Array | None, part: StatePart, name: str) -> None:
    if pc.list_flatten(column).null_count:
        raise UsageError(f"{name} has a null in its list, which it never has: leave it out")
    check_nulls(column, type_of_text(part.type), name)


def _sketch(column: pa.Array, known: pa.Array | None, part: StatePart, name: str) -> None:
    there = pa.nulls(0, column.type) if known is None else known
    is_new = pc.invert(pc.is_in(column.drop_null(), value_set=there))
    if pc.any(is_new).as_py():
        raise UsageError(
            f"{name} is a sketch, and none that the base has: give one of those, or null to begin anew"
        )


_Check = Callable[[pa.Array, pa.Array | None, StatePart, str], None]
_CHECKS: Mapping[str, _Check] = {
    "count": _count,
    "mean": _mean,
    "first": _outermost,
    "last": _outermost,
    "collect_list": _items,
    "count_distinct": _items,
    "quantile": _items,
    **dict.fromkeys(_SKETCHES, _sketch),
}
