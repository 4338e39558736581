"""Whether an Avro schema reads what another wrote: the resolution of Avro's specification, field by field.

Recursive types, unions, aliases, enums with defaults and references between schemas are followed. Logical
types are not compared, as Avro's own SchemaCompatibility does not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onceflow.connectors.formats.avro.schema.nodes import PRIMITIVES, fastavro
from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.runtime.errors import OptionError

_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What a reader may read each type as, beside itself."""
_COMPLEX = ("record", "error", "enum", "fixed", "array", "map")


@dataclass(frozen=True)
class AvroSchema:
    """A schema as fastavro parsed it, and the named types that it may refer to."""

    root: Any
    named: Mapping[str, Any]


def parsed(schema: RegisteredSchema) -> AvroSchema:
    """Raises OptionError for what is no Avro schema, and for a name that nothing defines."""
    library, known = fastavro(), dict[str, Any]()
    try:
        for each in schema.imports:
            library.schema.parse_schema(_loaded(each.text), named_schemas=known)
        root = library.schema.parse_schema(_loaded(schema.text), named_schemas=known)
    except Exception as error:  # the library raises what comes along: KeyError, TypeError, its own
        raise OptionError(f"this is no Avro schema: {error}; it begins with {schema.text[:100]}") from error
    return AvroSchema(root, known)


def _loaded(text: str) -> Any:
    """A schema may be the bare name of a type, without quotes."""
    return text if text in PRIMITIVES else json.loads(text)


def why_unread(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Where the reader's schema does not read what the writer's writes, half a sentence each. Empty: it
    does."""
    walk = _Walk(reader.named, writer.named)
    walk.compare(reader.root, writer.root, "")
    return list(dict.fromkeys(walk.found))


@dataclass
class _Walk:
    """One comparison. `seen`: pairs of records that are compared already, or just now: types may recur."""

    reader_names: Mapping[str, Any]
    writer_names: Mapping[str, Any]
    found: list[str] = field(default_factory=list)
    seen: set[tuple[str, str]] = field(default_factory=set)

    def compare(self, reader: Any, writer: Any, path: str) -> None:
        reader, writer = resolved(reader, self.reader_names), resolved(writer, self.writer_names)
        if isinstance(writer, list):
            for branch in writer:
                self.compare(reader, branch, path)
            return
        if isinstance(reader, list):
            if not any(self._reads(branch, writer) for branch in reader):
                self._say(path, f"is written as {_called(writer)}, which none of {_called(reader)} reads")
            return
        kind, other = _kind(reader), _kind(writer)
        if kind == other:
            self._compare_alike(kind, reader, writer, path)
        elif kind not in _WIDER.get(other, ()):
            self._say(path, f"is written as {_called(writer)} and read as {_called(reader)}")

    def _compare_alike(self, kind: str, reader: Any, writer: Any, path: str) -> None:
        match kind:
            case "record":
                self._compare_records(reader, writer, path)
            case "enum":
                self._compare_enums(reader, writer, path)
            case "fixed":
                if not _same_name(reader, writer) or reader["size"] != writer["size"]:
                    self._say(path, f"is written as {_called(writer)} and read as {_called(reader)}")
            case "array":
                self.compare(reader["items"], writer["items"], f"{path}[]")
            case "map":
                self.compare(reader["values"], writer["values"], f"{path}{{}}")

    def _reads(self, reader: Any, writer: Any) -> bool:
        """Asked of a branch, alone: what it finds is not told, since another branch may do."""
        walk = _Walk(self.reader_names, self.writer_names, [], set(self.seen))
        walk.compare(reader, writer, "")
        return not walk.found

    def _compare_records(self, reader: Any, writer: Any, path: str) -> None:
        if not _same_name(reader, writer):
            self._say(path, f"is the record {writer['name']} and read as {reader['name']}")
            return
        if (pair := (reader["name"], writer["name"])) in self.seen:
            return
        self.seen.add(pair)
        theirs = {each["name"]: each for each in writer["fields"]}
        for each in reader["fields"]:
            called = f"{path}.{each['name']}" if path else each["name"]
            names = [each["name"], *each.get("aliases", ())]
            other = next((theirs[name] for name in names if name in theirs), None)
            if other is not None:
                self.compare(each["type"], other["type"], called)
            elif "default" not in each:
                self._say(called, "is not written, and has no default for a reader")

    def _compare_enums(self, reader: Any, writer: Any, path: str) -> None:
        if not _same_name(reader, writer):
            self._say(path, f"is the enum {writer['name']} and read as {reader['name']}")
            return
        unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
        if unknown and "default" not in reader:
            self._say(path, f"may be written as {', '.join(unknown)}, which a reader does not have")

    def _say(self, path: str, what: str) -> None:
        self.found.append(f"the field {path!r} {what}" if path else f"the value {what}")


def resolved(schema: Any, named: Mapping[str, Any]) -> Any:
    """A union, a primitive's name, or what defines a type."""
    while not isinstance(schema, list):
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and (kind in PRIMITIVES or kind in _COMPLEX):
            break
        schema = named[kind] if isinstance(kind, str) else kind
    return schema


def _kind(schema: Any) -> str:
    kind = schema if isinstance(schema, str) else str(schema["type"])
    return "record" if kind == "error" else kind


def _called(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_called, schema))
    if isinstance(schema, str):
        return schema
    size = f" of {schema['size']} bytes" if schema["type"] == "fixed" else ""
    return f"{schema.get('name', schema['type'])}{size}"


def _same_name(reader: Any, writer: Any) -> bool:
    """Whether the last parts of the names are the same, or an alias is, as in Avro's own comparison."""
    last = [each["name"].rpartition(".")[2] for each in (reader, writer)]
    return last[0] == last[1] or writer["name"] in reader.get("aliases", ())
