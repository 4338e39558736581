"""A registry of schemas with Confluent's HTTP interface, as a slot and a sink ask it.

An id in a record always means the same schema, so each is asked for once in a process and kept for ever.
A registry that is away makes nothing bad: it is waited for, then the attempt fails and is restarted.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tenacity

from onceflow.connectors.formats.registry.compatibility import breaches, meaning_of
from onceflow.connectors.formats.registry.schemas import (
    SCHEMA_ID_MAX,
    ImportedSchema,
    RegisteredSchema,
    SchemaKind,
    SchemaReference,
    UnknownSchemaError,
    WrittenSchema,
)
from onceflow.runtime.errors import Fatal, OptionError, Retryable, Unavailable

Answer = TypeVar("Answer")

_NOT_FOUND = {40401: "subject", 40402: "version", 40403: "schema", 40408: "rule"}
_DENIED = (401, 403)
_INCOMPATIBLE = 409
_REFUSED = (400, _INCOMPATIBLE, 422)
_REQUEST_TIMEOUT_S = 10
_UNKNOWN_FOR_S = 10
"""How long an unknown id is not asked for again: a topic with strange bytes must not become a load test."""


class ConfluentRegistry:
    """A registry with Confluent's HTTP interface (Confluent's own, Karapace, Apicurio, Redpanda)."""

    def __init__(
        self, config: Mapping[str, Any], timeout_ms: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Opens no connection. Raises OptionError for a wrong setting."""
        self._now_s = now_s
        self._unknown: dict[int, tuple[float, str]] = {}
        client, self._schema_class, self._reference_class, self._error_class = _client_classes()
        self._url = _without_secrets(str(config.get("url", "")))
        self._timeout_s = timeout_ms / 1000
        self._schemas: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, WrittenSchema, bool], int] = {}
        try:
            # Waiting is done here, where it has a bound of its own. The client's own would be none: one
            # lost answer, and it reads for ever.
            request_s = config.get("timeout") or min(_REQUEST_TIMEOUT_S, self._timeout_s)
            self._client = client({"max.retries": 0, **config, "timeout": request_s})
        except (ValueError, TypeError) as error:
            raise OptionError(f"registry={self._url!r}: {_without_secrets(str(error))}") from error

    def schema(self, schema_id: int, kind: SchemaKind) -> RegisteredSchema:
        """The schema with this id. Raises UnknownSchemaError, also if it is of another kind; Retryable after
        waiting for a registry that is away; Fatal."""
        if schema_id not in self._schemas:
            until_s, reason = self._unknown.get(schema_id, (0.0, ""))
            if self._now_s() < until_s:
                raise UnknownSchemaError(reason)
            try:
                self._schemas[schema_id] = self._fetched(schema_id)
            except UnknownSchemaError as error:
                self._unknown = {i: known for i, known in self._unknown.items() if known[0] > self._now_s()}
                self._unknown[schema_id] = (self._now_s() + _UNKNOWN_FOR_S, str(error))
                raise
        found = self._schemas[schema_id]
        if found.kind != kind:
            raise UnknownSchemaError(f"schema {schema_id} is of the type {found.kind}, not {kind}")
        return found

    def id_of(self, subject: str, schema: WrittenSchema, auto_register: bool) -> int:
        """The id of a schema under a subject. It and what it refers to are registered or, if `auto_register`
        is False, only looked up. Raises Fatal naming the subject, Retryable."""
        key = (subject, schema, auto_register)
        if key not in self._ids:
            written = self._written(schema, auto_register)
            if auto_register:
                self._ids[key] = self._registered(subject, written)
            else:
                self._ids[key] = int(self._looked_up(subject, written).schema_id)
        return self._ids[key]

    # --- Parts ---

    def _written(self, schema: WrittenSchema, auto_register: bool) -> Any:
        """The schema as the client takes it, with the versions of those that it refers to."""
        references = [
            self._reference_class(each.name, each.subject, self._version_of(each, schema.kind, auto_register))
            for each in schema.references
        ]
        return self._schema_class(schema.text, schema.kind, references)

    def _version_of(self, of: SchemaReference, kind: SchemaKind, auto_register: bool) -> int:
        """The version of a schema that others refer to, which is registered if it may be."""
        schema = WrittenSchema(kind, of.schema, of.references)
        self.id_of(of.subject, schema, auto_register)
        return int(self._looked_up(of.subject, self._written(schema, auto_register)).version)

    def _registered(self, subject: str, written: Any) -> int:
        try:
            return int(self._ask(lambda: self._client.register_schema(subject, written)))
        except Fatal as error:
            cause = error.__cause__
            if getattr(cause, "http_status_code", None) != _INCOMPATIBLE:
                raise
            raise Fatal(self._why_incompatible(subject, written, cause)) from error

    def _why_incompatible(self, subject: str, written: Any, error: Any) -> str:
        """The rule that a schema breaks, and by which fields, as far as the registry tells what it
        compared."""
        said = _without_secrets(str(error.error_message))
        rule, version, found = "", "", []
        try:
            rule = self._rule_of(subject)
            latest = self._ask(lambda: self._client.get_latest_version(subject))
            version = f", version {latest.version},"
            found = breaches(written.schema_type, rule, latest.schema.schema_str, written.schema_str)
            if not found and written.schema_type == "PROTOBUF":  # it was text; a descriptor can be compared
                get = functools.partial(self._client.get_latest_version, subject, "serialized")
                text = self._ask_once(get, "").schema.schema_str
                found = breaches(written.schema_type, rule, text, written.schema_str)
        except (Fatal, Retryable, UnknownSchemaError):
            pass  # what the registry said is told
        by = f" by its rule {rule}{meaning_of(rule)}" if rule else ""
        why = f": compared with the latest{version} {'; '.join(found)}" if found else ""
        return (
            f"the schema registry {self._url} refuses the schema of the rows for the subject "
            f"{subject!r}{by}{why}. It says: {said}"
        )

    def _rule_of(self, subject: str) -> str:
        """The rule of a subject, or of the registry if it has none of its own."""
        try:
            return str(self._ask(lambda: self._client.get_compatibility(subject), missing="it has none"))
        except UnknownSchemaError:
            return str(self._ask(lambda: self._client.get_compatibility()))

    def _fetched(self, schema_id: int) -> RegisteredSchema:
        if schema_id > SCHEMA_ID_MAX:
            raise UnknownSchemaError(f"{schema_id} is not a schema id")
        found = self._ask(
            lambda: self._client.get_schema(schema_id), missing=f"there is no schema {schema_id}"
        )
        return RegisteredSchema(found.schema_type, found.schema_str, tuple(self._imports(found)))

    def _imports(self, schema: Any) -> list[ImportedSchema]:
        """The schemas that this one refers to by name, each after those that it refers to itself."""
        found: list[ImportedSchema] = []
        for reference in schema.references or ():
            get = functools.partial(self._client.get_version, reference.subject, reference.version)
            other = self._ask(
                get, missing=f"there is no version {reference.version} of {reference.subject}"
            ).schema
            own = ImportedSchema(reference.name, other.schema_str)
            found += [each for each in [*self._imports(other), own] if each not in found]
        return found

    def _looked_up(self, subject: str, written: Any) -> Any:
        try:
            return self._ask(lambda: self._client.lookup_schema(subject, written), missing="it is not there")
        except UnknownSchemaError as error:
            raise Fatal(
                f"subject {subject!r} of the registry {self._url} does not have the schema of the rows, and "
                f"auto_register=False: {written.schema_str}"
            ) from error

    def _ask(self, question: Callable[[], Answer], missing: str = "") -> Answer:
        """Asks until there is an answer, or the timeout is over."""
        wait = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Retryable),
            wait=tenacity.wait_exponential(multiplier=0.1, max=2),
            stop=tenacity.stop_after_delay(self._timeout_s),
            reraise=True,
        )
        answer: Answer = wait(self._ask_once, question, missing)
        return answer

    def _ask_once(self, question: Callable[[], Answer], missing: str) -> Answer:
        try:
            return question()
        except self._error_class as error:
            raise self._meaning(error, missing) from error
        except Exception as error:  # whatever the HTTP library raises when nobody answers
            raise Unavailable(
                f"the schema registry {self._url} can't be reached: {_without_secrets(str(error))}"
            ) from error

    def _meaning(self, error: Any, missing: str) -> Exception:
        status, code = error.http_status_code, error.error_code
        said = f"{_without_secrets(str(error.error_message))} (HTTP {status}, {code})"
        if status == 404 and code in _NOT_FOUND and missing:
            return UnknownSchemaError(f"{missing} in the registry: {said}")
        if status in _DENIED:
            return Fatal(f"the schema registry {self._url} denies access: {said}")
        if status in _REFUSED:
            return Fatal(f"the schema registry {self._url} refuses: {said}")
        if status == 404:
            return Fatal(f"{self._url} does not answer like a schema registry, is the URL right? {said}")
        return Retryable(f"the schema registry {self._url} fails: {said}")


def _without_secrets(text: str) -> str:
    return re.sub(r"//[^/\s@]+@", "//***@", text)


def _client_classes() -> tuple[Any, Any, Any, type[Exception]]:
    try:
        from confluent_kafka.schema_registry import (
            Schema,
            SchemaReference,
            SchemaRegistryClient,
            SchemaRegistryError,
        )
    except ModuleNotFoundError as error:
        raise OptionError(
            "a schema registry needs packages that are not installed: "
            f"pip install 'confluent-kafka[schemaregistry]' (it lacks {error.name!r})"
        ) from error
    return SchemaRegistryClient, Schema, SchemaReference, SchemaRegistryError


_OPEN: dict[tuple[tuple[str, str], ...], ConfluentRegistry] = {}


def open_registry(config: Mapping[str, Any], timeout_ms: int) -> ConfluentRegistry:
    """The process's client for these settings."""
    key = tuple(sorted((name, str(value)) for name, value in {**config, "timeout_ms": timeout_ms}.items()))
    if key not in _OPEN:
        _OPEN[key] = ConfluentRegistry(config, timeout_ms)
    return _OPEN[key]
