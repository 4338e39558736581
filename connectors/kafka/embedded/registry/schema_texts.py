"""The text by which a registry knows a schema again, however it was spaced; and whether it is one. Pure."""

from __future__ import annotations

import json

import msgspec

from onceflow.connectors.formats.avro.schema.nodes import PRIMITIVES
from onceflow.connectors.formats.protobuf.message_names import message_names
from onceflow.connectors.formats.registry.schemas import WRITTEN, RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.avro_rules import parsed
from onceflow.runtime.errors import OptionError


def canonical(schema: RegisteredSchema) -> str:
    """Raises OptionError for what is no schema of its kind. Protobuf stays as it was sent."""
    match schema.kind:
        case "AVRO":
            parsed(schema)
            return json.dumps(schema.text) if schema.text in PRIMITIVES else _spaced(schema.text)
        case "JSON":
            if not isinstance(json.loads(schema.text), dict | bool):
                raise OptionError("a JSON Schema must be an object, true or false")
            return _spaced(schema.text)
        case "PROTOBUF":
            _require_protobuf(schema.text)
            return schema.text
    raise OptionError(f"there are schemas of the types {', '.join(WRITTEN)}, not {schema.kind!r}")


def _spaced(text: str) -> str:
    """The JSON text without spaces between its tokens, which stay as they are."""
    return msgspec.json.format(text, indent=-1)


def _require_protobuf(text: str) -> None:
    try:
        message_names(text)
    except ModuleNotFoundError:
        return  # without the library a descriptor is taken as it is
