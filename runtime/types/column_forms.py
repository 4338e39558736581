"""What a column says of itself beside its Arrow type: the name that the outside knows it by, and what its
values mean. It is kept as metadata of the Arrow field, so that a format that sees nothing but columns
writes them as the user's type would be written.

Only formats read it. Metadata never decides whether two columns have the same type.
"""

from __future__ import annotations

import pyarrow as pa

_NAME = b"onceflow.name"
_FORM = b"onceflow.form"

JSON = "json"
"""Text that is a JSON value."""
NUMBER = "number"
"""Decimals whose zeros at the end mean nothing."""
UUID = "uuid"
"""Text that is a UUID, in lower case with hyphens."""
TUPLE = "tuple"
"""A struct whose fields are the places of a tuple, in order."""
UNION = "union"
"""A struct with the tag in its first field, and a nullable struct for each tag, of which one is there."""


def outside_name(field: pa.Field) -> str:
    """What the field is called in JSON and Avro."""
    named = (field.metadata or {}).get(_NAME)
    return str(field.name) if named is None else str(named.decode())


def form_of(field: pa.Field) -> str:
    """One of the forms above, or the empty string."""
    return str((field.metadata or {}).get(_FORM, b"").decode())


def described(field: pa.Field, form: str = "", outside: str = "") -> pa.Field:
    """The field with a form and a name outside, where they are given."""
    said = {_FORM: form.encode()} if form else {}
    if outside and outside != field.name:
        said[_NAME] = outside.encode()
    return field.with_metadata(said) if said else field


def renamed(field: pa.Field, name: str) -> pa.Field:
    """The same values in a column of this name. The old one's name outside is not the new one's."""
    if name == field.name:
        return field
    return described(pa.field(name, field.type, field.nullable), form_of(field))
