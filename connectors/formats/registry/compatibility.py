"""Why a schema does not follow the one before it: the rule of the subject, and the fields that break it.

A registry says no in words of its own, which name a path in a schema or no more than a difference. What is
said here beside them is found by comparing the two schemas. It explains and never decides: where it finds
nothing, the registry's words stand alone.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onceflow.connectors.formats.registry.schemas import SchemaKind

RULES: Mapping[str, str] = {
    "BACKWARD": "the new schema must read what was written with the old one",
    "FORWARD": "the old schema must read what is written with the new one",
    "FULL": "the new schema and the old one must read what is written with the other",
}
"""What each rule asks for. Those that end with _TRANSITIVE ask the same of every version."""

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What an Avro reader may read each type as, beside itself."""
_PROTOBUF_TYPES = [
    "double",
    "float",
    "int64",
    "uint64",
    "int32",
    "fixed64",
    "fixed32",
    "bool",
    "string",
    "group",
    "message",
    "bytes",
    "uint32",
    "enum",
    "sfixed32",
    "sfixed64",
    "sint32",
    "sint64",
]
_PROTOBUF_ALIKE = (
    {"int32", "uint32", "int64", "uint64", "bool", "enum"},
    {"sint32", "sint64"},
    {"string", "bytes"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a schema. `may_lack`: whether a reader takes a record without it."""

    type: str
    may_lack: bool
    name: str = ""


def meaning_of(rule: str) -> str:
    """What a rule asks for, in brackets behind its name; the empty string for one that is not known."""
    said = RULES.get(rule.removesuffix("_TRANSITIVE"))
    return "" if said is None else f" ({said})"


def breaches(kind: SchemaKind, rule: str, old: str, new: str) -> list[str]:
    """The fields by which the new schema breaks the rule, one half of a sentence for each."""
    try:
        before, after = _FIELDS[kind](old), _FIELDS[kind](new)
    except (ValueError, KeyError, TypeError, AttributeError):  # a schema of a form that is not known here
        return []
    found: list[str] = []
    base = rule.removesuffix("_TRANSITIVE")
    if base in ("BACKWARD", "FULL"):
        found += _unread(kind, reader=after, writer=before, is_new=True)
    if base in ("FORWARD", "FULL"):
        found += _unread(kind, reader=before, writer=after, is_new=False)
    return list(dict.fromkeys(found))


def _unread(
    kind: SchemaKind, reader: Mapping[str, _Field], writer: Mapping[str, _Field], is_new: bool
) -> list[str]:
    """Why a reader's schema does not read what a writer's writes. `is_new`: the reader's is the new one."""
    found = []
    for path, field in reader.items():
        called = repr(field.name or path)
        other = writer.get(path)
        if other is None:
            parent = path.rpartition(".")[0]
            if field.may_lack or (parent and parent not in writer):
                continue
            without = "is required" if kind == "JSON" else "has no default"
            found.append(
                f"the field {called} is new and {without}"
                if is_new
                else f"the field {called} is gone, and {without} in the old schema"
            )
        elif not _reads(kind, field.type, other.type):
            old, new = (other.type, field.type) if is_new else (field.type, other.type)
            found.append(f"the field {called} was {old} and is {new}")
        elif kind == "JSON" and other.may_lack and not field.may_lack:
            found.append(
                f"the field {called} is required and was not"
                if is_new
                else f"the field {called} was required and is not any more"
            )
    return found


def _reads(kind: SchemaKind, reader: str, writer: str) -> bool:
    if reader == writer:
        return True
    if kind == "AVRO":
        branches = [part.strip() for part in writer.split(" or ")]
        taken = [part.strip() for part in reader.split(" or ")]
        return all(any(b == t or t in _WIDER.get(b, ()) for t in taken) for b in branches)
    if kind == "JSON":
        return reader == "anything" or (reader == "number" and writer == "integer")
    return any(reader in alike and writer in alike for alike in _PROTOBUF_ALIKE)


# --- The fields of schemas ------------------------------------------------------------------------


def _avro_fields(text: str) -> dict[str, _Field]:
    found: dict[str, _Field] = {}

    def walk(schema: Any, above: str) -> None:
        for each in schema if isinstance(schema, list) else [schema]:
            if not isinstance(each, dict):
                continue
            if each.get("type") == "record":
                for field in each["fields"]:
                    path = f"{above}{field['name']}"
                    found[path] = _Field(_avro_type(field["type"]), "default" in field)
                    walk(field["type"], f"{path}.")
            else:
                walk(each.get("items", each.get("values", each.get("type"))), above)

    walk(json.loads(text), "")
    return found


def _avro_type(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_avro_type, schema))
    if not isinstance(schema, dict):
        return str(schema)
    if isinstance(schema["type"], dict | list):
        return _avro_type(schema["type"])
    named = schema.get("name", "") if schema["type"] in ("record", "enum", "fixed") else ""
    return str(named or schema["type"])


def _json_fields(text: str) -> dict[str, _Field]:
    found: dict[str, _Field] = {}

    def walk(schema: Any, above: str) -> None:
        required = schema.get("required", ())
        for name, inner in schema.get("properties", {}).items():
            path = f"{above}{name}"
            found[path] = _Field(_json_type(inner), name not in required)
            if isinstance(inner, dict):
                walk(inner, f"{path}.")
                if isinstance(inner.get("items"), dict):
                    walk(inner["items"], f"{path}[].")

    walk(json.loads(text), "")
    return found


def _json_type(schema: Any) -> str:
    if not isinstance(schema, dict):
        return "anything"
    said = schema.get("type", schema.get("$ref", "anything"))
    return " or ".join(map(str, said)) if isinstance(said, list) else str(said)


def _protobuf_fields(text: str) -> dict[str, _Field]:
    """The fields by number, as Protobuf knows them. The text has to be a descriptor in base64."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ValueError(str(error)) from error
    found: dict[str, _Field] = {}

    def walk(message: Any, above: str) -> None:
        for field in message.field:
            said = _PROTOBUF_TYPES[field.type - 1]
            kind = said if said not in ("message", "group") else field.type_name.lstrip(".")
            required = field.label == field.LABEL_REQUIRED
            found[f"{above}{message.name}.{field.number}"] = _Field(
                kind, not required, f"{above}{message.name}.{field.name} = {field.number}"
            )
        for inner in message.nested_type:
            walk(inner, f"{above}{message.name}.")

    for message in file.message_type:
        walk(message, "")
    return found


_FIELDS = {"AVRO": _avro_fields, "JSON": _json_fields, "PROTOBUF": _protobuf_fields}
