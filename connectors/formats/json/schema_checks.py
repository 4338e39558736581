"""JSON Schema: whether a value is what a schema says, and what schema rows have that have none.

Drafts 4 to 2020-12, by jsonschema-rs: compiled, some microseconds for a value. Nothing is fetched: a `$ref`
is found among the schemas that were given or that the registry has, or the schema is no use.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.column_forms import JSON, TUPLE, UNION, UUID, form_of, outside_name

_DRAFT = "http://json-schema.org/draft-07/schema#"


class JsonSchema:
    """A schema that was compiled. Two of the same text are equal."""

    def __init__(self, schema: RegisteredSchema) -> None:
        """Raises OptionError for a text that is no JSON Schema, or refers to what is not there."""
        library = _library()
        self._text = _canonical(schema.text)
        self._imports = {each.name: _loaded(each.text) for each in schema.imports}
        try:
            self._validator = library.validator_for(_loaded(schema.text), retriever=self._found)
        except (library.ValidationError, library.ReferencingError, ValueError) as error:
            said = str(error).splitlines()[0]
            raise OptionError(
                f"this is no JSON Schema: {said}; it begins with {schema.text[:100]}"
            ) from error
        self._error = library.ValidationError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def why_not(self, value: bytes) -> str | None:
        """Why a value is not what the schema says, with the path in it; None: it is."""
        try:
            found = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # whoever decodes it says what is wrong
        try:
            self._validator.validate(found)
        except self._error as error:
            return f"{error.message} - at `{_path(error.instance_path)}`, by its JSON Schema"
        except (ValueError, TypeError, OverflowError) as error:
            return f"it can't be compared with its JSON Schema: {error}"
        return None

    def _found(self, uri: str) -> Any:
        """A schema that this one refers to. Relative names are made absolute by the library."""
        for name, schema in self._imports.items():
            if uri in (name, f"json-schema:///{name}") or uri.rpartition("/")[2] == name:
                return schema
        raise ValueError(f"{uri} is none of its references ({', '.join(self._imports) or 'there are none'})")


def parse_registered(schema: RegisteredSchema) -> JsonSchema:
    """Raises OptionError."""
    return JsonSchema(schema)


def _path(steps: Iterable[Any]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"this is no JSON Schema: {error}; it begins with {text[:100]}") from error


def _canonical(text: str) -> str:
    return json.dumps(_loaded(text), sort_keys=True)


def _library() -> Any:
    """The library, or OptionError saying how to get it."""
    try:
        import jsonschema_rs
    except ModuleNotFoundError as error:
        raise OptionError(
            "JSON Schema needs packages that are not installed: pip install 'onceflow[jsonschema]' "
            f"(it lacks {error.name!r})"
        ) from error
    return jsonschema_rs


# --- The schema of rows that have none ------------------------------------------------------------


def schema_of_rows(schema: pa.Schema, name: str) -> dict[str, Any]:
    """What `Json` writes for rows with these columns. It has no other fields, so that a nullable one can be
    added later; one that is not nullable is required."""
    return {"$schema": _DRAFT, "title": name, **_object(schema)}


def _object(fields: Iterable[pa.Field]) -> dict[str, Any]:
    listed = list(fields)
    return {
        "type": "object",
        "properties": {outside_name(field): _field(field) for field in listed},
        "required": [outside_name(field) for field in listed if not field.nullable],
        "additionalProperties": False,
    }


def _field(field: pa.Field) -> dict[str, Any]:
    said = _type(field)
    if not field.nullable or not said:
        return said
    return {"oneOf": [{"type": "null"}, said]}


def _type(field: pa.Field) -> dict[str, Any]:
    arrow, form, is_ = field.type, form_of(field), pa.types
    if form in (JSON, UNION):
        return {}  # anything
    if form == TUPLE:
        return {"type": "array", "minItems": arrow.num_fields, "maxItems": arrow.num_fields}
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        return {"type": "array", "items": _field(arrow.value_field)}
    if is_.is_map(arrow):
        return {"type": "object", "additionalProperties": _field(arrow.item_field)}
    if is_.is_struct(arrow):
        return _object(arrow)
    return _scalar(arrow, form)


def _scalar(arrow: pa.DataType, form: str) -> dict[str, Any]:
    is_ = pa.types
    if is_.is_boolean(arrow):
        return {"type": "boolean"}
    if is_.is_integer(arrow):
        return {"type": "integer"}
    if is_.is_floating(arrow) or is_.is_decimal(arrow):
        return {"type": "number"}
    if is_.is_null(arrow):
        return {"type": "null"}
    formats: Mapping[bool, str] = {
        form == UUID: "uuid", is_.is_timestamp(arrow): "date-time", is_.is_date32(arrow): "date"
    }  # fmt: skip
    return {"type": "string", **({"format": formats[True]} if True in formats else {})}
