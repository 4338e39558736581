"""Confluent's requests, answered: what `confluent-kafka` and its serializers ask, and onceflow's formats.

Contexts, metadata, rules, modes and associations are not kept: a client that insists on them is told so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.rules import DEFAULT_LEVEL, LEVELS, why_refused
from onceflow.connectors.kafka.embedded.registry.schema_texts import canonical
from onceflow.connectors.kafka.embedded.registry.subjects import (
    Change,
    KeptSchema,
    LevelSet,
    Reference,
    SchemaAdded,
    Subjects,
    VersionAdded,
    VersionDeleted,
    described,
    schema_fields,
)
from onceflow.runtime.errors import OptionError

Query = Mapping[str, str]


class RefusedRequest(Exception):
    """An answer that is an error: `code` is Confluent's, whose first three digits are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3])


class Requests:
    """Answers one request at a time. `keep`: called with changes before they count; when it returns they
    are on disk."""

    def __init__(self, subjects: Subjects, keep: Callable[[list[Change]], None]) -> None:
        self._subjects = subjects
        self._keep = keep

    def answer(self, method: str, path: tuple[str, ...], query: Query, body: Any) -> Any:
        """What is sent back, to be written as JSON. Raises RefusedRequest."""
        match method, *path:
            case ("GET",):
                return {}
            case "GET", "contexts":
                return ["."]
            case "GET", "schemas", "types":
                return ["JSON", "PROTOBUF", "AVRO"]
            case "GET", "schemas", "ids", number, *rest:
                return self._by_id(number, rest, query)
            case _, "subjects", *rest:
                return self._of_subjects(method, rest, query, body)
            case "POST", "compatibility", "subjects", subject, "versions", *rest:
                return self._compatible(subject, rest[0] if rest else None, query, body)
            case _, "config", *rest if len(rest) < 2:
                return self._level(method, rest[0] if rest else "", query, body)
            case "GET", "mode", *_:
                return {"mode": "READWRITE"}
        raise RefusedRequest(404, f"HTTP 404: this registry does not know {method} /{'/'.join(path)}")

    # --- Schemas and subjects ---

    def _by_id(self, number: str, rest: list[str], query: Query) -> Any:
        schema_id = int(number) if number.isdecimal() else -1
        if (schema := self._subjects.schemas.get(schema_id)) is None:
            raise RefusedRequest(40403, f"Schema {number} not found")
        places = self._subjects.places_of(schema_id, _is_set(query, "deleted"))
        match rest:
            case []:
                return schema_fields(schema)
            case ["schema"]:
                return json.loads(schema.text) if schema.kind != "PROTOBUF" else schema.text
            case ["subjects"]:
                return sorted({subject for subject, _ in places})
            case ["versions"]:
                return [{"subject": subject, "version": version} for subject, version in places]
        raise RefusedRequest(404, "HTTP 404: ask /schemas/ids/ID, or its /schema, /subjects or /versions")

    def _of_subjects(self, method: str, path: list[str], query: Query, body: Any) -> Any:
        deleted = _is_set(query, "deleted")
        match method, *path:
            case ("GET",):
                begin = query.get("subjectPrefix", "")
                return [name for name in self._subjects.names(deleted) if name.startswith(begin)]
            case "POST", subject:
                return self._look_up(subject, body, deleted)
            case "DELETE", subject:
                return self._delete_all(subject, _is_set(query, "permanent"))
            case "GET", subject, "versions":
                return list(self._versions(subject, deleted))
            case "POST", subject, "versions":
                return self._register(subject, body)
            case "GET", subject, "versions", version, *rest:
                return self._version(subject, self._number(subject, version, deleted), deleted, rest)
            case "DELETE", subject, "versions", version:
                for_good = _is_set(query, "permanent")
                number = self._number(subject, version, for_good)
                self._delete(subject, [number], for_good)
                return number
        raise RefusedRequest(404, "HTTP 404: ask /subjects, /subjects/NAME or /subjects/NAME/versions")

    def _versions(self, subject: str, deleted: bool) -> dict[int, int]:
        if not (found := self._subjects.versions(subject, deleted)):
            raise RefusedRequest(40401, f"Subject '{subject}' not found.")
        return found

    def _number(self, subject: str, version: str, deleted: bool) -> int:
        there = self._versions(subject, deleted)
        if version in ("latest", "-1"):
            return max(there)
        if not version.isdecimal() or int(version) == 0:
            raise RefusedRequest(42202, f"The specified version '{version}' is not a valid version id.")
        if int(version) not in there:
            raise RefusedRequest(40402, f"Version {version} not found.")
        return int(version)

    def _version(self, subject: str, number: int, deleted: bool, rest: list[str]) -> Any:
        schema_id = self._versions(subject, deleted)[number]
        schema = self._subjects.schemas[schema_id]
        match rest:
            case []:
                return described(subject, number, schema_id, schema)
            case ["schema"]:
                return json.loads(schema.text) if schema.kind != "PROTOBUF" else schema.text
            case ["referencedby"]:
                return self._subjects.referring_to(subject, number)
        raise RefusedRequest(404, "HTTP 404: ask /subjects/NAME/versions/N, or its /schema or /referencedby")

    def _look_up(self, subject: str, body: Any, deleted: bool) -> Any:
        there = self._versions(subject, deleted)
        schema, _ = self._schema_of(body)
        schema_id = self._subjects.id_of(schema)
        for version, each in reversed(there.items()):
            if each == schema_id:
                return described(subject, version, each, schema)
        raise RefusedRequest(40403, "Schema not found")

    def _register(self, subject: str, body: Any) -> Any:
        schema, registered = self._schema_of(body)
        schema_id = self._subjects.id_of(schema)
        there = self._subjects.versions(subject)
        for version, each in there.items():
            if each == schema_id:
                return described(subject, version, each, schema)
        before = [self._subjects.registered(self._subjects.schemas[each]) for each in there.values()]
        level = self._level_of(subject)
        if why := why_refused(level, registered, before):
            raise RefusedRequest(
                409,
                f"Schema being registered is incompatible with an earlier schema for subject '{subject}', "
                f"whose level is {level}: {'; '.join(why)}",
            )
        changes: list[Change] = []
        if schema_id is None:
            schema_id = self._subjects.next_id()
            changes.append(SchemaAdded(schema_id, schema))
        version = self._subjects.next_version(subject)
        self._keep([*changes, VersionAdded(subject, version, schema_id)])
        return described(subject, version, schema_id, schema)

    def _delete_all(self, subject: str, for_good: bool) -> list[int]:
        there = list(self._versions(subject, for_good))
        self._delete(subject, there, for_good)
        return there

    def _delete(self, subject: str, versions: list[int], for_good: bool) -> None:
        for number in versions:
            if self._subjects.referring_to(subject, number):
                said = f"One or more references exist to the schema: version {number} of {subject}"
                raise RefusedRequest(42206, said)
            if for_good and not self._subjects.is_deleted(subject, number):
                said = f"Subject '{subject}' Version {number} was not deleted first before being permanently"
                raise RefusedRequest(40407, f"{said} deleted")
        self._keep([VersionDeleted(subject, number, for_good) for number in versions])

    # --- Compatibility ---

    def _compatible(self, subject: str, version: str | None, query: Query, body: Any) -> Any:
        """Whether a schema may follow that version; without one, whether it may be the next."""
        _, registered = self._schema_of(body)
        there = self._subjects.versions(subject)
        if version is None:
            compared = list(there.values())
        else:
            compared = [there[self._number(subject, version, deleted=False)]]
        before = [self._subjects.registered(self._subjects.schemas[each]) for each in compared]
        why = why_refused(self._level_of(subject), registered, before)
        return {"is_compatible": not why, **({"messages": why} if _is_set(query, "verbose") else {})}

    def _level(self, method: str, subject: str, query: Query, body: Any) -> Any:
        own = self._subjects.levels.get(subject)
        if method == "PUT":
            level = str(body.get("compatibility", "")).upper() if isinstance(body, dict) else ""
            if level not in LEVELS:
                said = f"Invalid compatibility level {level!r}. Valid values are {', '.join(LEVELS)}"
                raise RefusedRequest(42203, said)
            self._keep([LevelSet(subject, level)])
            return {"compatibility": level}
        if method == "DELETE":
            if own is not None:
                self._keep([LevelSet(subject, None)])
            return {"compatibility": own or DEFAULT_LEVEL}
        if method != "GET":
            raise RefusedRequest(405, f"HTTP 405: /config takes GET, PUT and DELETE, not {method}")
        if own is None and subject and not _is_set(query, "defaultToGlobal"):
            said = f"Subject '{subject}' does not have subject-level compatibility configured"
            raise RefusedRequest(40408, said)
        return {"compatibilityLevel": self._level_of(subject)}

    def _level_of(self, subject: str) -> str:
        return self._subjects.levels.get(subject) or self._subjects.levels.get("") or DEFAULT_LEVEL

    # --- What a client sends ---

    def _schema_of(self, body: Any) -> tuple[KeptSchema, RegisteredSchema]:
        """The schema of a request, with the texts that it refers to. Raises RefusedRequest for one that is
        none."""
        if not isinstance(body, dict) or not isinstance(body.get("schema"), str):
            raise RefusedRequest(42201, "Invalid schema: the request has no field 'schema' with a text")
        for feature in ("metadata", "ruleSet"):
            if body.get(feature):
                said = f"this registry does not keep a schema's {feature}: register it without"
                raise RefusedRequest(42201, f"Invalid schema: {said}")
        try:
            references = tuple(map(self._reference, body.get("references") or ()))
            schema = KeptSchema(body.get("schemaType") or "AVRO", body["schema"], references)
            registered = self._subjects.registered(schema)
            text = canonical(registered)
        except (OptionError, KeyError, TypeError, ValueError) as error:
            said = f"there is no {error.args[0]}" if isinstance(error, KeyError) else str(error)
            raise RefusedRequest(42201, f"Invalid schema: {said}") from error
        kept = KeptSchema(schema.kind, text, references)
        return kept, RegisteredSchema(schema.kind, text, registered.imports)

    def _reference(self, given: Any) -> Reference:
        subject, version = str(given["subject"]), int(given["version"])
        if version == -1:
            version = self._number(subject, "latest", deleted=False)
        return str(given["name"]), subject, version


def _is_set(query: Query, name: str) -> bool:
    return query.get(name, "").lower() == "true"
