"""What becomes of a record that can't be decoded, in each stream that Spark reads.

It stops the query, or it is a row with its bytes in a column of their own, since Spark has no second output
for a source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance, shown_value
from onceflow.runtime.errors import BadRecordError, OptionError
from onceflow.runtime.nearest import nearest

CORRUPT = "_corrupt_record"
ADVICE = (
    "To go on with such records in a column of their own, add _corrupt_record BINARY to the schema and "
    '.option("mode", "permissive")'
)
MODE, TOLERANCE, COLUMN = "mode", "errors_tolerance", "columnNameOfCorruptRecord"
OPTIONS = (MODE, TOLERANCE, COLUMN)
"""Spark's own two, and the name that the first one has in a job."""

_MODES: Mapping[str, Tolerance] = {"failfast": "none", "permissive": "all"}


class ColumnOfTheirOwn:
    """What a source is given as the place for its dead letters: nothing is written to it, since the task that
    reads makes rows of them."""


def tolerance_of(given: Mapping[str, str]) -> Tolerance:
    """What these options say. Raises OptionError for one that is not known, and for two that differ."""
    mode = given.get(MODE, "failfast").lower()
    if mode not in _MODES:
        dropped = " (no record is dropped without a trace)" if mode == "dropmalformed" else ""
        raise OptionError(f'mode={mode!r}{dropped}: write "failfast" or "permissive"')
    named = given.get(TOLERANCE, _MODES[mode]).lower()
    if named not in _MODES.values():
        raise OptionError(
            f'errors_tolerance={named!r}{nearest(named, _MODES.values())}: write "none" or "all"'
        )
    if MODE in given and named != _MODES[mode]:
        raise OptionError(f"options mode={mode} and errors_tolerance={named} say different things: give one")
    return "all" if named == "all" else "none"


def corrupt_column(schema: pa.Schema, given: Mapping[str, str]) -> str | None:
    """The column for values that can't be decoded; None: one stops the query. Raises OptionError."""
    if tolerance_of(given) == "none":
        if COLUMN in given:
            raise OptionError('columnNameOfCorruptRecord is of no use unless mode="permissive"')
        return None
    name = given.get(COLUMN, CORRUPT)
    if name not in schema.names or schema.field(name).type not in (pa.string(), pa.binary()):
        raise OptionError(
            f'mode="permissive" needs a column {name!r} of type BINARY or STRING in the schema, for values '
            "that can't be decoded"
        )
    return name


def check_nullable(columns: Sequence[pa.Field]) -> None:
    """Raises OptionError if one of these, which have no value in a record that can't be decoded, may not be
    null."""
    required = [field.name for field in columns if not field.nullable]
    if required:
        raise OptionError(f"mode=permissive needs columns that may be null, and {required[0]!r} may not")


def as_text_or_bytes(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    """What could not be decoded, as the column for it is declared."""
    if pa.types.is_binary(arrow):
        return values
    given: list[bytes | None] = values.to_pylist()
    return pa.array([None if each is None else each.decode(errors="replace") for each in given], arrow)


def bad_value_error(what: str, reason: str, value: bytes | None) -> BadRecordError:
    """The error for the first bad record of a query that has no column for it."""
    return BadRecordError(f"{what} can't be decoded: {reason}{shown_value(value)}. {ADVICE}")
