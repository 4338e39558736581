"""Where the schemas of Avro records come from: a schema registry, or a fixed mapping.

An id in a record always means the same schema, so each is asked for once in a process and kept for ever.
A registry that is away makes nothing bad: it is waited for, then the attempt fails and is restarted.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import tenacity

from onceflow.connectors.formats.avro.schema.nodes import AvroJson, Node, parse_schema
from onceflow.runtime.errors import Fatal, GraphError, OptionError, Retryable, Unavailable

Answer = TypeVar("Answer")

SCHEMA_ID_MAX = (1 << 31) - 1

_NOT_FOUND = {40401: "subject", 40402: "version", 40403: "schema"}
_DENIED = (401, 403)
_REFUSED = (400, 409, 422)
_REQUEST_TIMEOUT_S = 10
_UNKNOWN_FOR_S = 10
"""How long an unknown id is not asked for again: a topic with strange bytes must not become a load test."""


class UnknownSchemaError(Exception):
    """No Avro schema has this id: the records that name it are bad."""


class Schemas(Protocol):
    """Schemas by id. Used by one thread."""

    def schema_of(self, schema_id: int) -> Node:
        """Raises UnknownSchemaError; Retryable after waiting for a registry that is away; Fatal."""
        ...

    def id_of(self, schema: Mapping[str, Any], subject: str | None, auto_register: bool) -> int:
        """The id of a schema that is to be written. Raises GraphError if there is none (which a running
        job meets as Fatal), Retryable, Fatal."""
        ...


class LocalSchemas:
    """A fixed mapping, for tests and for places without a registry."""

    def __init__(self, schemas: Mapping[int, AvroJson]) -> None:
        for schema_id in schemas:
            if type(schema_id) is not int or not 0 <= schema_id <= SCHEMA_ID_MAX:
                raise OptionError(f"registry={{{schema_id!r}: ...}}: a schema's id is from 0 to 2147483647")
        self._nodes = {schema_id: parse_schema(schema) for schema_id, schema in schemas.items()}

    def schema_of(self, schema_id: int) -> Node:
        if schema_id not in self._nodes:
            known = ", ".join(map(str, self._nodes))
            raise UnknownSchemaError(f"there is no schema {schema_id}; there are {known}")
        return self._nodes[schema_id]

    def id_of(self, schema: Mapping[str, Any], subject: str | None, auto_register: bool) -> int:
        wanted = parse_schema(dict(schema))
        for schema_id, node in self._nodes.items():
            if node == wanted:
                return schema_id
        raise GraphError(
            "the mapping registry={id: schema} does not have the schema of the rows: " + json.dumps(schema)
        )


class ConfluentRegistry:
    """A registry with Confluent's HTTP interface (Confluent's own, Karapace, Apicurio, Redpanda)."""

    def __init__(
        self, config: Mapping[str, Any], timeout_ms: int, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Opens no connection. Raises OptionError for a wrong setting."""
        self._now_s = now_s
        self._unknown: dict[int, tuple[float, str]] = {}
        client, self._schema_class, self._error_class = _client_classes()
        self._url = _without_secrets(str(config.get("url", "")))
        self._timeout_s = timeout_ms / 1000
        self._nodes: dict[int, Node] = {}
        self._ids: dict[tuple[str, str, bool], int] = {}
        try:
            # Waiting is done here, where it has a bound of its own. The client's own would be none: one
            # lost answer, and it reads for ever.
            request_s = config.get("timeout") or min(_REQUEST_TIMEOUT_S, self._timeout_s)
            self._client = client({"max.retries": 0, **config, "timeout": request_s})
        except (ValueError, TypeError) as error:
            raise OptionError(f"registry={self._url!r}: {_without_secrets(str(error))}") from error

    def schema_of(self, schema_id: int) -> Node:
        if schema_id in self._nodes:
            return self._nodes[schema_id]
        until_s, reason = self._unknown.get(schema_id, (0.0, ""))
        if self._now_s() < until_s:
            raise UnknownSchemaError(reason)
        try:
            self._nodes[schema_id] = self._fetched(schema_id)
        except UnknownSchemaError as error:
            self._unknown = {i: known for i, known in self._unknown.items() if known[0] > self._now_s()}
            self._unknown[schema_id] = (self._now_s() + _UNKNOWN_FOR_S, str(error))
            raise
        return self._nodes[schema_id]

    def id_of(self, schema: Mapping[str, Any], subject: str | None, auto_register: bool) -> int:
        if subject is None:
            raise GraphError(
                'Avro does not know the subject to register the schema under: say Avro(..., subject="...")'
            )
        text = json.dumps(schema)
        key = (subject, text, auto_register)
        if key not in self._ids:
            avro = self._schema_class(text, "AVRO")
            if auto_register:
                self._ids[key] = self._ask(lambda: self._client.register_schema(subject, avro))
            else:
                self._ids[key] = self._looked_up(subject, avro, text)
        return self._ids[key]

    def _fetched(self, schema_id: int) -> Node:
        if schema_id > SCHEMA_ID_MAX:
            raise UnknownSchemaError(f"{schema_id} is no schema id")
        found = self._ask(
            lambda: self._client.get_schema(schema_id), missing=f"there is no schema {schema_id}"
        )
        if found.schema_type != "AVRO":
            raise UnknownSchemaError(f"schema {schema_id} is of the type {found.schema_type}, not AVRO")
        try:
            return parse_schema(found.schema_str, self._references(found))
        except OptionError as error:
            raise UnknownSchemaError(f"schema {schema_id} can't be used: {error}") from error

    def _references(self, schema: Any) -> list[str]:
        """The schemas that this one refers to by name, each after those that it refers to itself."""
        found: list[str] = []
        for reference in schema.references or ():
            get = functools.partial(self._client.get_version, reference.subject, reference.version)
            other = self._ask(
                get, missing=f"there is no version {reference.version} of {reference.subject}"
            ).schema
            found += [text for text in [*self._references(other), other.schema_str] if text not in found]
        return found

    def _looked_up(self, subject: str, avro: Any, text: str) -> int:
        try:
            found = self._ask(lambda: self._client.lookup_schema(subject, avro), missing="it is not there")
        except UnknownSchemaError as error:
            raise Fatal(
                f"subject {subject!r} of the registry {self._url} does not have the schema of the rows, and "
                f"auto_register=False: {text}"
            ) from error
        return int(found.schema_id)

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


def _client_classes() -> tuple[Any, Any, type[Exception]]:
    try:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
    except ModuleNotFoundError as error:
        raise OptionError(
            "a schema registry needs packages that are not installed: pip install 'onceflow[avro]' "
            f"(it lacks {error.name!r})"
        ) from error
    return SchemaRegistryClient, Schema, SchemaRegistryError


_OPEN: dict[tuple[tuple[str, str], ...], ConfluentRegistry] = {}


def open_registry(config: Mapping[str, Any], timeout_ms: int) -> ConfluentRegistry:
    """The process's client for these settings."""
    key = tuple(sorted((name, str(value)) for name, value in {**config, "timeout_ms": timeout_ms}.items()))
    if key not in _OPEN:
        _OPEN[key] = ConfluentRegistry(config, timeout_ms)
    return _OPEN[key]
