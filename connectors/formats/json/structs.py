"""The msgspec types that JSON values are decoded into: what is a good value, before Arrow sees it."""

from __future__ import annotations

import datetime as dt
import decimal
import re
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.column_forms import outside_name
from onceflow.runtime.types.encoding import encode_inner
from onceflow.runtime.types.value_types import (
    Choice,
    Clock,
    Decimals,
    ListOf,
    MapOf,
    Plain,
    RecordField,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    Uuid,
    ValueType,
)

_TIME = Annotated[dt.time, msgspec.Meta(tz=False)]
_MAP_KEYS = {pa.string(): str, pa.large_string(): str, pa.int64(): int, pa.date32(): dt.date}
FLOAT32_MAX = float(np.nextafter(float(np.finfo(np.float32).max) + 2.0**103, 0.0))
"""The largest number that is rounded to the largest float of 32 bits: half a step above it is infinity.
Writers of JSON give that float with eight digits, 3.4028235e38, which is more than it is."""
_UNREADABLE_NAME = re.compile(r'[\x00-\x1f"\\]')


@dataclass(frozen=True, slots=True)
class Reading:
    """How values are read. `forbids_unknown`: a field that nobody declared makes a value bad; None: the
    record types say so. `zone`: of times without an offset; None: they are bad."""

    forbids_unknown: bool | None = None
    zone: ZoneInfo | None = None


class Ready:
    """The default of a field, as Arrow takes it."""

    __slots__ = ("plain",)

    def __init__(self, plain: Any) -> None:
        self.plain = plain


def struct_of(
    name: str,
    fields: Iterable[pa.Field],
    record: RecordType | None,
    reading: Reading,
    tag: tuple[str, str] | None = None,
    is_typed: bool = False,
) -> type[msgspec.Struct]:
    """Attributes f0, f1, ... under the columns' names in JSON, which may be no Python names.

    A field of a record type may be missing if it has a default, and then has it. A nullable column of
    an Arrow schema may be missing, and is then null. Everything else must be there. `tag`: the field that
    tells this type in a union, and its text; it gets no attribute. `is_typed`: whether what is decoded goes
    through `arrow_values.converter`.
    """
    names: dict[str, str] = {}
    definitions: list[Any] = []
    for index, field in enumerate(fields):
        outside = outside_name(field)
        if tag is not None and outside == tag[0]:
            continue
        if _UNREADABLE_NAME.search(outside):
            raise OptionError(f"Json can't read a field named {outside!r}: quotes, backslashes, controls")
        attribute = f"f{index}"
        names[attribute] = outside
        declared = None if record is None else record.field(field.name)
        python = _field_type(field, None if declared is None else declared.type, reading)
        if declared is not None and declared.default is not None:
            default = _default(declared, is_typed or not declared.type.is_plain)
            definitions.append((attribute, python, msgspec.field(default_factory=default)))
        elif record is None and field.nullable:
            definitions.append((attribute, python, None))
        else:
            definitions.append((attribute, python))
    forbids = reading.forbids_unknown
    if forbids is None:
        forbids = record is not None and record.refuses_unknown
    options: dict[str, Any] = {} if tag is None else {"tag_field": tag[0], "tag": tag[1]}
    return msgspec.defstruct(
        name, definitions, rename=names, kw_only=True, gc=False, forbid_unknown_fields=forbids, **options
    )


def _default(field: RecordField, is_ready: bool) -> Callable[[], Any]:
    """What makes the default of a field, for each value that lacks it. Raises OptionError if it is no value
    of the field's type."""
    assert field.default is not None
    make = field.default.make
    if not is_ready:
        return make
    encode = encode_inner(field.type, field.name)
    if field.default.factory is None:
        try:
            encode(field.default.value)
        except (TypeError, ValueError) as error:
            raise OptionError(f"the default of {field.name!r} is wrong: {error}") from error
    return lambda: Ready(encode(make()))


def _field_type(field: pa.Field, declared: ValueType | None, reading: Reading) -> Any:
    if declared is not None and not declared.is_plain:
        return _value_type(declared, reading)
    python: Any = _python_type(field.type, declared, reading)
    return python | None if field.nullable else python


# --- Types of the user's --------------------------------------------------------------------------


def _value_type(of: ValueType, reading: Reading) -> Any:
    """What msgspec is told to decode a value of this type from."""
    python = _inner_type(of, reading)
    return Union[python, None] if of.nullable else python  # noqa: UP007 - `|` is not for every type


def _inner_type(of: ValueType, reading: Reading) -> Any:
    match of.kind:
        case Plain():
            return _python_type(of.arrow, of, reading)
        case Choice(values):
            return Literal[values]
        case Decimals():
            return decimal.Decimal
        case ListOf(items):
            return list[_value_type(items, reading)]  # type: ignore[misc]
        case TupleOf(parts):
            return tuple[tuple(_value_type(part, reading) for part in parts)]  # type: ignore[misc]
        case MapOf(keys, values):
            return dict[_value_type(keys, reading), _value_type(values, reading)]  # type: ignore[misc]
        case RecordOf(record):
            return struct_of("Nested", record.schema, record, reading, None, True)
        case UnionOf(field, variants):
            structs = [struct_of("Nested", r.schema, r, reading, (field, tag), True) for tag, r in variants]
            return Union[tuple(structs)]  # noqa: UP007 - of a list
    return _SINGLE.get(of.kind, Any)


_SINGLE: dict[Any, Any] = {
    Clock("time"): _TIME,
    Clock("timedelta"): dt.timedelta,
    Uuid(): uuid.UUID,
}


# --- Arrow's types --------------------------------------------------------------------------------


def _python_type(arrow: pa.DataType, declared: ValueType | None, reading: Reading) -> Any:
    """What msgspec is told to decode a value of this Arrow type from."""
    is_ = pa.types
    items = None if declared is None else declared.items
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        return list[_field_type(arrow.value_field, items, reading)]  # type: ignore[misc]
    if is_.is_map(arrow) and arrow.key_type in _MAP_KEYS:
        key: Any = _MAP_KEYS[arrow.key_type]
        return dict[key, _field_type(arrow.item_field, items, reading)]  # type: ignore[misc]
    if is_.is_struct(arrow):
        record = None if declared is None else declared.record
        return struct_of("Nested", list(arrow), record, reading)
    if is_.is_timestamp(arrow) and arrow.unit != "ns":  # Python's datetime ends at microseconds
        if arrow.tz is not None and reading.zone is not None:
            return dt.datetime
        return Annotated[dt.datetime, msgspec.Meta(tz=arrow.tz is not None)]
    if is_.is_decimal(arrow):  # Arrow finds what has too many digits
        return decimal.Decimal
    if is_.is_integer(arrow):
        return _integer(arrow.bit_width, is_.is_signed_integer(arrow))
    if arrow == pa.float32():
        return Annotated[float, msgspec.Meta(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
    plain = {
        pa.bool_(): bool, pa.float64(): float, pa.string(): str, pa.large_string(): str,
        pa.binary(): bytes, pa.large_binary(): bytes, pa.date32(): dt.date, pa.duration("us"): dt.timedelta,
        pa.time32("ms"): _TIME, pa.time64("us"): _TIME,
    }  # fmt: skip
    if arrow in plain:
        return plain[arrow]
    raise OptionError(
        f"Json has no way to decode the Arrow type {arrow}; there are bool, int8 to uint64, float, double, "
        "decimal, string, binary (base64), timestamp, date32, time32[ms], time64[us], duration[us], list, "
        "struct, and map whose keys are string, int64 or date32"
    )


def _integer(bit_width: int, is_signed: bool) -> Any:
    if not is_signed:
        # msgspec takes no bound above int64: what is too large for a uint64 is found by Arrow.
        return Annotated[int, msgspec.Meta(ge=0, le=None if bit_width == 64 else (1 << bit_width) - 1)]
    return Annotated[int, msgspec.Meta(ge=-(1 << (bit_width - 1)), le=(1 << (bit_width - 1)) - 1)]
