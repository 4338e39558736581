"""Avro's schemas of a registry as trees."""

from __future__ import annotations

from onceflow.connectors.formats.avro.schema.nodes import Node, parse_schema
from onceflow.connectors.formats.registry.schemas import RegisteredSchema


def parse_registered(schema: RegisteredSchema) -> Node:
    """Raises OptionError for what is no Avro schema."""
    return parse_schema(schema.text, [each.text for each in schema.imports])
