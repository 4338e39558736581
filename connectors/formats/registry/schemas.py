"""Schemas by id: of a registry, or of a fixed mapping. What a decoder and an encoder ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.explained_calls import explained

Parsed = TypeVar("Parsed")
ParsedOut = TypeVar("ParsedOut", covariant=True)
SchemaKind = Literal["AVRO", "JSON", "PROTOBUF"]

SCHEMA_ID_MAX = (1 << 31) - 1
WRITTEN: Mapping[SchemaKind, str] = {"AVRO": "Avro", "JSON": "Json", "PROTOBUF": "Protobuf"}
"""The format of each kind, as a user writes it."""


class UnknownSchemaError(Exception):
    """No schema of the right kind has this id: the records that name it are bad."""


@dataclass(frozen=True, slots=True)
class ImportedSchema:
    """A schema of a registry that another refers to, and how it is called there."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as a registry has it. `imports`: each after those that it refers to itself."""

    kind: SchemaKind
    text: str
    imports: tuple[ImportedSchema, ...] = ()


@explained
@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that a written one refers to, registered under a subject of its own.

    `name` is how it is called there: a full name in Avro, a URI in JSON Schema, a file in Protobuf. `schema`
    is its text. Its version is asked of the registry, where it is registered first if it may be.
    """

    name: str
    subject: str
    schema: str
    references: tuple[SchemaReference, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenSchema:
    """A schema of rows that are written."""

    kind: SchemaKind
    text: str
    references: tuple[SchemaReference, ...] = ()

    def as_registered(self) -> RegisteredSchema:
        """The same, as it will be read back."""
        return RegisteredSchema(self.kind, self.text, tuple(_imports(self.references)))


def _imports(references: tuple[SchemaReference, ...]) -> list[ImportedSchema]:
    found: list[ImportedSchema] = []
    for each in references:
        own = ImportedSchema(each.name, each.schema)
        found += [other for other in [*_imports(each.references), own] if other not in found]
    return found


class Schemas(Protocol[ParsedOut]):
    """Schemas by id. Used by one thread."""

    def schema_of(self, schema_id: int) -> ParsedOut:
        """Raises UnknownSchemaError; Retryable after waiting for a registry that is away; Fatal."""
        ...

    def id_of(self, schema: WrittenSchema, subject: str | None, auto_register: bool) -> int:
        """The id of a schema that is to be written. Raises GraphError if there is none (which a running
        job meets as Fatal), Retryable, Fatal."""
        ...


class Registry(Protocol):
    """What is asked of `ConfluentRegistry`."""

    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema: ...

    def id_of(self, subject: str, schema: WrittenSchema, auto_register: bool) -> int: ...


class RegistrySchemas(Generic[Parsed]):
    """The schemas of one kind in a registry, parsed once for each user of them."""

    def __init__(
        self, registry: Registry, kind: SchemaKind, parse: Callable[[RegisteredSchema], Parsed]
    ) -> None:
        """`parse` raises OptionError for a text that is no use: then the records of the schema are bad."""
        self.registry = registry
        self._kind: SchemaKind = kind
        self._parse = parse
        self._parsed: dict[int, Parsed] = {}

    def schema_of(self, schema_id: int) -> Parsed:
        if schema_id not in self._parsed:
            found = self.registry.schema(schema_id, self._kind)
            try:
                self._parsed[schema_id] = self._parse(found)
            except OptionError as error:
                raise UnknownSchemaError(f"schema {schema_id} can't be used: {error}") from error
        return self._parsed[schema_id]

    def id_of(self, schema: WrittenSchema, subject: str | None, auto_register: bool) -> int:
        if subject is None:
            form = WRITTEN[self._kind]
            raise GraphError(
                f"{form} does not know the subject to register the schema under: say "
                f'{form}(..., subject="...")'
            )
        return self.registry.id_of(subject, schema, auto_register)


class LocalSchemas(Generic[Parsed]):
    """A fixed mapping, for tests and for places without a registry."""

    def __init__(
        self,
        schemas: Mapping[int, Any],
        kind: SchemaKind,
        parse: Callable[[RegisteredSchema], Parsed],
    ) -> None:
        """`schemas`: texts, or what is a text as JSON. Raises OptionError for what is no schema."""
        for schema_id in schemas:
            if type(schema_id) is not int or not 0 <= schema_id <= SCHEMA_ID_MAX:
                raise OptionError(f"registry={{{schema_id!r}: ...}}: a schema's id is from 0 to 2147483647")
        self._parse = parse
        self._parsed = {
            schema_id: parse(RegisteredSchema(kind, schema_text(schema)))
            for schema_id, schema in schemas.items()
        }

    def schema_of(self, schema_id: int) -> Parsed:
        if schema_id not in self._parsed:
            known = ", ".join(map(str, self._parsed))
            raise UnknownSchemaError(f"there is no schema {schema_id}; there are {known}")
        return self._parsed[schema_id]

    def id_of(self, schema: WrittenSchema, subject: str | None, auto_register: bool) -> int:
        wanted = self._parse(schema.as_registered())
        for schema_id, parsed in self._parsed.items():
            if parsed == wanted:
                return schema_id
        raise GraphError(
            "the mapping registry={id: schema} does not have the schema of the rows: " + schema.text
        )


def schema_text(schema: Any) -> str:
    """A schema that was given as text, or as what json.loads makes of it."""
    return schema if isinstance(schema, str) else json.dumps(schema)
