"""Keys of rows as text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.named_columns import check_columns, columns_given
from onceflow.runtime.errors import GraphError, OptionError


def key_columns(key: str | Sequence[str], who: str) -> tuple[str, ...]:
    """The names that the user gave. Raises OptionError if there is none."""
    names = columns_given(key)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise OptionError(f"{who}: key must name the column, or the columns, that tell rows apart")
    return names


def check_key(names: Sequence[str], schema: pa.Schema, uid: str) -> None:
    """Raises GraphError if the rows lack a column of the key, or it has no one text for each value."""
    check_columns("key", names, schema, uid)
    for name in names:
        of = schema.field(name).type
        if not _is_key(of):
            raise GraphError(
                f"sink {uid!r}: key column {name!r} is {of}, which can't be a key: use whole numbers, text, "
                "booleans, dates, times or decimals"
            )


def key_texts(batch: pa.RecordBatch, names: Sequence[str]) -> list[str | None]:
    """Each row's key: the value of its column as text, or of several columns, joined by colons. No two keys
    have the same text: of several columns, a colon or % in a text is written %3A and %25. None where a column
    is null."""
    columns = [_texts(batch.column(name), is_alone=len(names) == 1) for name in names]
    if len(columns) == 1:
        texts: list[str | None] = columns[0].to_pylist()
        return texts
    joined: list[str | None] = pc.binary_join_element_wise(*columns, ":").to_pylist()
    return joined


def _texts(column: pa.Array, is_alone: bool) -> pa.Array:
    text = column.cast(pa.string())
    if is_alone:
        return text
    return pc.replace_substring(pc.replace_substring(text, "%", "%25"), ":", "%3A")


def _is_key(of: pa.DataType) -> bool:
    is_ = pa.types
    return bool(
        is_.is_integer(of)
        or is_.is_string(of)
        or is_.is_large_string(of)
        or is_.is_boolean(of)
        or is_.is_date(of)
        or is_.is_timestamp(of)
        or is_.is_time(of)
        or is_.is_decimal(of)
    )
