"""How the columns of rows become the columns of a table. Pure.

A column is written only where the table's type takes every value of it as it is: nothing is rounded, cut or
read as something else. What does not fit is refused when the writer is opened, with the column and both
types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.errors import Fatal, GraphError
from onceflow.runtime.nearest import nearest

_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_EXACT_IN_FLOAT = {64: 32, 32: 16}
"""Bits of a float: bits of the largest integer of which it has every value."""


@dataclass(frozen=True, slots=True)
class TypesOfTable:
    """What a table format can store."""

    name: str
    int_bits_min: int
    """Its smallest integer."""
    has_time: bool
    """Whether it has times of a day."""

    def stored(self, of: pa.DataType) -> pa.DataType | None:
        """The type that a new column gets for these values; None: there is none."""
        if pa.types.is_dictionary(of):
            return self.stored(of.value_type)
        if pa.types.is_integer(of):
            bits = max(of.bit_width * (1 if pa.types.is_signed_integer(of) else 2), self.int_bits_min)
            return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(bits)
        if pa.types.is_timestamp(of):
            return None if of.unit == "ns" else pa.timestamp("us", "UTC" if of.tz else None)
        if pa.types.is_decimal(of):
            return pa.decimal128(of.precision, of.scale) if of.precision <= 38 and of.scale >= 0 else None
        if pa.types.is_time(of):
            return pa.time64("us") if self.has_time and of.unit != "ns" else None
        if _is_list(of) or pa.types.is_map(of) or pa.types.is_struct(of):
            return self._nested(of)
        return _plain(of)

    def _nested(self, of: pa.DataType) -> pa.DataType | None:
        inner = (
            [self.stored(of.field(n).type) for n in range(of.num_fields)]
            if not pa.types.is_map(of)
            else [
                self.stored(of.key_type),
                self.stored(of.item_type),
            ]
        )
        if None in inner or not inner:
            return None
        if pa.types.is_struct(of):
            return pa.struct([of.field(n).with_type(each) for n, each in enumerate(inner)])
        return pa.map_(*inner) if pa.types.is_map(of) else pa.list_(of.field(0).with_type(inner[0]))

    def check(self, rows: pa.Schema, uid: str) -> None:
        """Raises GraphError for a column that no table of this format can have."""
        for field in rows:
            if self.stored(field.type) is None:
                raise GraphError(
                    f"sink {uid!r}: {self.name} has no type for column {field.name!r}, which is "
                    f"{field.type}: cast it before, to text or a number as others read it"
                )
        lower = [name.lower() for name in rows.names]
        for name in rows.names:
            if lower.count(name.lower()) > 1:
                raise GraphError(
                    f"sink {uid!r}: column {name!r} is there twice, since {self.name} does not tell upper "
                    "from lower case: rename one"
                )

    def new_table(self, rows: pa.Schema, required: Sequence[str] = ()) -> pa.Schema:
        """The columns of a table that is made for these rows; all may be null but the required ones."""
        return pa.schema([pa.field(f.name, self.stored(f.type), f.name not in required) for f in rows])


@dataclass(frozen=True, slots=True)
class FittedColumns:
    """How rows are written to a table that is there."""

    schema: pa.Schema
    """The columns that the rows have, in their order, as the table has them."""
    added: tuple[pa.Field, ...]
    """The columns among them that the table does not have yet."""

    def fit(self, batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """The rows as the table has them. Raises Fatal for a null where it has none."""
        arrays = []
        for field in self.schema:
            array = batch.column(field.name)
            if array.null_count and not field.nullable:
                raise Fatal(
                    f"{where}: column {field.name!r} is null in a row, and never is in the table: "
                    "filter such rows, or give it a value"
                )
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def fitted(
    rows: pa.Schema, table: pa.Schema, types: TypesOfTable, where: str, may_add: bool
) -> FittedColumns:
    """How these rows are written to this table. Raises Fatal, with the column and its types."""
    there = {field.name: field for field in table}
    lower = {name.lower(): name for name in there}
    fields, added = [], []
    for field in rows:
        if field.name in there:
            wanted = there[field.name]
            if not takes(wanted.type, field.type):
                raise Fatal(
                    f"{where}: column {field.name!r} is {field.type} in the rows and {wanted.type} in the "
                    "table, which does not fit: cast it before, or change the table"
                )
            fields.append(wanted)
            continue
        if same := lower.get(field.name.lower()):
            raise Fatal(
                f"{where}: column {field.name!r} of the rows is {same!r} in the table: rename it before"
            )
        if not may_add:
            raise Fatal(
                f"{where}: column {field.name!r} ({field.type}) is not in the table"
                f"{nearest(field.name, table.names)}: add it there, leave it out of the rows, or say "
                'schema_evolution="add"'
            )
        added.append(pa.field(field.name, types.stored(field.type)))
        fields.append(added[-1])
    for field in table:
        if not field.nullable and field.name not in rows.names:
            raise Fatal(
                f"{where}: column {field.name!r} ({field.type}) of the table is never null, and not in the "
                f"rows{nearest(field.name, rows.names)}: select it"
            )
    return FittedColumns(pa.schema(fields), tuple(added))


def takes(wanted: pa.DataType, of: pa.DataType) -> bool:
    """Whether a column of type `wanted` has every value of type `of` as it is."""
    if wanted == of:
        return True
    if pa.types.is_dictionary(of):
        return takes(wanted, of.value_type)
    if pa.types.is_fixed_size_binary(wanted):
        return False  # of another size, or of none
    if pa.types.is_integer(of):
        return _takes_integers(wanted, of)
    if pa.types.is_floating(of):
        return bool(pa.types.is_floating(wanted) and wanted.bit_width >= of.bit_width)
    if pa.types.is_decimal(of):
        is_decimal = pa.types.is_decimal(wanted)
        return bool(
            is_decimal
            and wanted.scale >= of.scale
            and wanted.precision - wanted.scale >= of.precision - of.scale
        )
    if pa.types.is_timestamp(of) or pa.types.is_time(of):
        same_kind = pa.types.is_timestamp(wanted) if pa.types.is_timestamp(of) else pa.types.is_time(wanted)
        return bool(same_kind and _unit(wanted) >= _unit(of) and _has_zone(wanted) == _has_zone(of))
    if pa.types.is_nested(of):
        return _takes_nested(wanted, of)
    plain = _plain(of)
    return plain is not None and plain == _plain(wanted)


def _takes_nested(wanted: pa.DataType, of: pa.DataType) -> bool:
    if _is_list(of):
        return _is_list(wanted) and takes(wanted.value_type, of.value_type)
    if pa.types.is_map(of):
        is_map = pa.types.is_map(wanted)
        return is_map and takes(wanted.key_type, of.key_type) and takes(wanted.item_type, of.item_type)
    if pa.types.is_struct(of):
        return bool(
            pa.types.is_struct(wanted)
            and [f.name for f in wanted] == [f.name for f in of]
            and all(takes(w.type, o.type) for w, o in zip(wanted, of, strict=True))
        )
    return False


def _takes_integers(wanted: pa.DataType, of: pa.DataType) -> bool:
    is_signed = pa.types.is_signed_integer(of)
    if pa.types.is_signed_integer(wanted):
        return bool(wanted.bit_width >= of.bit_width if is_signed else wanted.bit_width > of.bit_width)
    if pa.types.is_floating(wanted):
        return bool(of.bit_width <= _EXACT_IN_FLOAT.get(wanted.bit_width, 8))
    if pa.types.is_decimal(wanted):
        return bool(wanted.precision - wanted.scale >= _DIGITS[of.bit_width])
    return False


def _plain(of: pa.DataType) -> pa.DataType | None:
    """The type that stands for all which hold the same values in another form."""
    if pa.types.is_string(of) or pa.types.is_large_string(of) or of == pa.string_view():
        return pa.string()
    if pa.types.is_binary(of) or pa.types.is_large_binary(of) or of == pa.binary_view():
        return pa.binary()
    if pa.types.is_fixed_size_binary(of):
        return pa.binary()
    if pa.types.is_date(of):
        return pa.date32()
    if pa.types.is_floating(of):
        return pa.float32() if of.bit_width < 64 else pa.float64()
    return of if pa.types.is_boolean(of) else None


def _is_list(of: pa.DataType) -> bool:
    return bool(pa.types.is_list(of) or pa.types.is_large_list(of) or pa.types.is_fixed_size_list(of))


def _unit(of: pa.DataType) -> int:
    return ["s", "ms", "us", "ns"].index(of.unit)


def _has_zone(of: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(of) and of.tz)
