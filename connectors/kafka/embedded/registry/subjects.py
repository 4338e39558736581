"""Schemas by id, versions of subjects, and their levels: what a registry knows, as a fold of its changes.

An id never means another schema and is never taken away, so what is in a topic can always be read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from onceflow.connectors.formats.registry.schemas import ImportedSchema, RegisteredSchema, SchemaKind

Reference = tuple[str, str, int]
"""How a schema is called by the one that refers to it; its subject; its version."""


class KeptSchema(msgspec.Struct, frozen=True):
    """A schema and what it refers to. Two that are alike have one id."""

    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()


class SchemaAdded(msgspec.Struct, frozen=True, tag=True):
    id: int
    schema: KeptSchema


class VersionAdded(msgspec.Struct, frozen=True, tag=True):
    subject: str
    version: int
    id: int


class VersionDeleted(msgspec.Struct, frozen=True, tag=True):
    """`for_good`: else it is hidden, and may still be asked for."""

    subject: str
    version: int
    for_good: bool


class LevelSet(msgspec.Struct, frozen=True, tag=True):
    """`subject` "": of all that have none of their own. `level` None: no more of its own."""

    subject: str
    level: str | None


Change = SchemaAdded | VersionAdded | VersionDeleted | LevelSet


@dataclass
class Subjects:
    """Changed by `apply` alone."""

    schemas: dict[int, KeptSchema] = field(default_factory=dict)
    levels: dict[str, str] = field(default_factory=dict)
    _ids: dict[KeptSchema, int] = field(default_factory=dict)
    _versions: dict[str, dict[int, int]] = field(default_factory=dict)
    _deleted: set[tuple[str, int]] = field(default_factory=set)

    def apply(self, change: Change) -> None:
        match change:
            case SchemaAdded():
                self.schemas[change.id] = change.schema
                self._ids[change.schema] = change.id
            case VersionAdded():
                self._versions.setdefault(change.subject, {})[change.version] = change.id
            case VersionDeleted(for_good=False):
                self._deleted.add((change.subject, change.version))
            case VersionDeleted():
                self._deleted.discard((change.subject, change.version))
                del self._versions[change.subject][change.version]
                if not self._versions[change.subject]:
                    del self._versions[change.subject]
            case LevelSet(level=None):
                self.levels.pop(change.subject, None)
            case LevelSet():
                self.levels[change.subject] = str(change.level)

    def names(self, with_deleted: bool = False) -> list[str]:
        return sorted(name for name in self._versions if self.versions(name, with_deleted))

    def versions(self, subject: str, with_deleted: bool = False) -> dict[int, int]:
        """The ids of a subject by version, the oldest first."""
        there = sorted(self._versions.get(subject, {}).items())
        return {v: i for v, i in there if with_deleted or (subject, v) not in self._deleted}

    def is_deleted(self, subject: str, version: int) -> bool:
        return (subject, version) in self._deleted

    def id_of(self, schema: KeptSchema) -> int | None:
        return self._ids.get(schema)

    def next_id(self) -> int:
        return max(self.schemas, default=0) + 1

    def next_version(self, subject: str) -> int:
        return max(self._versions.get(subject, ()), default=0) + 1

    def places_of(self, schema_id: int, with_deleted: bool = False) -> list[tuple[str, int]]:
        """The subjects and versions that have this schema."""
        return [
            (name, version)
            for name in self.names(with_deleted)
            for version, each in self.versions(name, with_deleted).items()
            if each == schema_id
        ]

    def referring_to(self, subject: str, version: int) -> list[int]:
        """The ids of schemas that are under some subject and refer to this version."""
        return [
            schema_id
            for schema_id, schema in self.schemas.items()
            if any(each[1:] == (subject, version) for each in schema.references) and self.places_of(schema_id)
        ]

    def registered(self, schema: KeptSchema) -> RegisteredSchema:
        """The schema with the texts that it refers to. Raises KeyError naming a reference that is not
        there."""
        imports = dict[ImportedSchema, None].fromkeys(self._imports(schema))
        return RegisteredSchema(schema.kind, schema.text, tuple(imports))

    def _imports(self, schema: KeptSchema) -> Iterator[ImportedSchema]:
        for name, subject, version in schema.references:
            found = self.versions(subject, with_deleted=True).get(version)
            if found is None:
                raise KeyError(f"version {version} of {subject}")
            yield from self._imports(self.schemas[found])
            yield ImportedSchema(name, self.schemas[found].text)


def described(subject: str, version: int, schema_id: int, schema: KeptSchema) -> dict[str, Any]:
    """A version as clients take it."""
    return {"subject": subject, "version": version, "id": schema_id, **schema_fields(schema)}


def schema_fields(schema: KeptSchema) -> dict[str, Any]:
    """A schema as clients take it: the type is left out where it is Avro."""
    row: dict[str, Any] = {"schema": schema.text}
    if schema.kind != "AVRO":
        row["schemaType"] = schema.kind
    if schema.references:
        row["references"] = [
            {"name": name, "subject": subject, "version": version}
            for name, subject, version in schema.references
        ]
    return row
