"""The columns of a source of messages: what a message's body holds, and what is known of it beside. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from onceflow.connectors.formats import Format
from onceflow.runtime.arguments import check_formats
from onceflow.runtime.errors import OptionError


def named_fields(
    types: Mapping[str, pa.DataType], nullable: Sequence[str] = (), **names: str | None
) -> dict[str, pa.Field]:
    """The columns that the user has given a name, by what they hold. `types`: of each; text, if it has none
    there. `nullable`: which of them a message may lack."""
    return {
        what: pa.field(name, types.get(what, pa.string()), what in nullable)
        for what, name in names.items()
        if name is not None
    }


def attribute(name: str) -> str:
    """What an attribute of a message is called among what is known of it."""
    return f"attribute {name}"


def attribute_fields(columns: Mapping[str, str]) -> dict[str, pa.Field]:
    """The columns with attributes of messages, by what they hold. `columns`: the attribute of each."""
    return {attribute(name): pa.field(column, pa.string()) for column, name in columns.items()}


def message_schema(value: Format, beside: Iterable[pa.Field], columns: frozenset[str] | None) -> pa.Schema:
    """The body's columns and those `beside` it, of which the job reads `columns`; None: all."""
    fields = [*(value.schema or ()), *beside]
    return pa.schema([field for field in fields if columns is None or field.name in columns])


def check_value(value: Format) -> None:
    """Raises OptionError if it is no format that can tell a body's columns."""
    check_formats("decoder", value=value)
    if value.schema is None:
        raise OptionError(f"value={value!r} can only encode; to read, say what is in it: Json(Trade)")


def check_distinct(names: Sequence[str]) -> None:
    """Raises OptionError if two columns of a source have the same name."""
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise OptionError(f"two columns of the source are named {twice[0]!r}: give another column name")
