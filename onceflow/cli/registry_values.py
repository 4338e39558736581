"""RegistryValues: values in Avro by a schema registry, for commands that print, write and judge records."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from onceflow.cli.avro_values import of_json
from onceflow.cli.record_lines import UndecodedError
from onceflow.connectors.formats.registry.schemas import ImportedSchema, RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.avro_rules import AvroSchema, parsed
from onceflow.runtime.errors import OptionError, Unavailable, UsageError

_REQUEST_S = 10
_NOT_FOUND = 404
_NO_SUBJECT = 40401
"""What a registry says where a subject has no schema."""
_EPOCH, _MS = dt.datetime.fromtimestamp(0, dt.UTC), dt.timedelta(milliseconds=1)
_MAGIC, _HEADER = b"\0", 5
"""The first byte of a value whose schema's id comes next, and the length of both. No JSON begins with it."""


LOCAL_REGISTRY = "http://127.0.0.1:8081"
"""Where `onceflow broker start --registry` puts one that was given no port."""


def require_registry_packages(option: str) -> None:
    """Raises OptionError if the packages are not installed that this option needs."""
    try:
        import confluent_kafka.schema_registry.avro  # noqa: F401
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{option} needs packages that are not installed: pip install 'onceflow[avro]' "
            f"(it lacks {error.name!r})"
        ) from error


@dataclass(frozen=True, slots=True)
class WrittenBy:
    """What values are written by. `schema`: the text of an Avro schema, which is registered; else the latest
    one of the subject. `subject` None: `<topic>-value`."""

    schema: str | None = None
    subject: str | None = None


class RegistryValues:
    """Decodes and encodes by Confluent's own classes: the schema with the id that a value begins with, and
    the one that `written_by` says. What is JSON by a JSON Schema is read, too."""

    def __init__(self, url: str, topic: str, written_by: WrittenBy | None = None) -> None:
        """Opens no connection. Raises OptionError if the packages for it are not installed."""
        require_registry_packages("--registry")
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, avro
        from confluent_kafka.serialization import MessageField, SerializationContext

        self._client = client = SchemaRegistryClient({"url": url, "timeout": _REQUEST_S, "max.retries": 2})
        self._url = url.rpartition("@")[2]
        self._context = SerializationContext(topic, MessageField.VALUE)
        library: Any = avro  # without types
        self._deserializer = library.AvroDeserializer(client)
        by = written_by or WrittenBy()
        self._subject = subject = by.subject or f"{topic}-value"
        conf: dict[str, Any] = {"subject.name.strategy": lambda *_: subject}
        conf |= {"auto.register.schemas": False, "use.latest.version": by.schema is None}
        self._written = by.schema
        self._make_serializer: Callable[[], Any] = functools.partial(
            library.AvroSerializer, client, by.schema, conf=conf
        )
        self._make_schema: Any = Schema
        self._writer: tuple[Any, AvroSchema] | None = None

    def decode(self, raw: bytes) -> Any:
        """Raises UndecodedError saying why a value can't be decoded, and Unavailable if the registry can't be
        asked."""
        kind = self._ask_for_schema_of(raw)
        try:
            if kind == "JSON":
                return msgspec.json.decode(raw[_HEADER:])
            return self._deserializer(raw, self._context)
        except Exception as error:  # the library raises what comes along
            raise UndecodedError(f"a value is no Avro by the registry at {self._url}: {error}") from error

    def _ask_for_schema_of(self, raw: bytes) -> str | None:
        """The type of the schema, if it has one. Asked for alone, and kept by the client: what fails here but
        for an id that no schema has says something of the registry and nothing of the value."""
        if not raw.startswith(_MAGIC) or len(raw) < _HEADER:
            return None
        try:
            schema = self._client.get_schema(int.from_bytes(raw[len(_MAGIC) : _HEADER], "big"))
            return str(schema.schema_type)
        except Exception as error:  # the library raises what comes along
            if getattr(error, "http_status_code", None) != _NOT_FOUND:
                raise Unavailable(self._unreachable(error)) from error
            return None

    def _unreachable(self, error: Exception) -> str:
        said = f"the schema registry at {self._url} can't be asked for a value's schema: {error}"
        is_here = any(name in self._url for name in ("127.0.0.1", "localhost"))
        return said + (". `onceflow broker start --registry` starts one on this machine" if is_here else "")

    def as_json(self, raw: bytes) -> bytes:
        """What `decode` gives, as JSON for the auditor: instants in ms since 1970 (UTC), decimals as numbers.
        A value that does not begin as Confluent's wire format does stays as it is. Raises as decode does."""
        if not raw.startswith(_MAGIC):
            return raw
        value = self.decode(raw)
        if isinstance(value, dict):
            value = {name: _comparable(each) for name, each in value.items()}
        return msgspec.json.encode(value, enc_hook=str)

    def encode(self, value: Any, where: str) -> bytes:
        """Raises UsageError that begins with `where`, and Unavailable if the registry can't be asked."""
        if self._writer is None:
            self._writer = self._opened(where)
        serializer, shape = self._writer
        try:
            return bytes(serializer(of_json(value, shape), self._context))
        except Exception as error:  # the library raises what comes along
            raise UsageError(
                f"{where} can't be written by the schema of {self._subject} at {self._url}: {error}"
            ) from error

    def _opened(self, where: str) -> tuple[Any, AvroSchema]:
        """The serializer, and its schema, which is registered if it was given."""
        try:
            if self._written is not None:
                self._client.register_schema(self._subject, self._make_schema(self._written, "AVRO"))
                return self._make_serializer(), parsed(RegisteredSchema("AVRO", self._written))
            latest = self._client.get_latest_version(self._subject).schema
            schema = RegisteredSchema("AVRO", str(latest.schema_str), tuple(self._imports(latest)))
        except Exception as error:  # the library raises what comes along
            if getattr(error, "http_status_code", None) is None:
                raise Unavailable(self._unreachable(error)) from error
            if getattr(error, "error_code", None) == _NO_SUBJECT:
                raise UsageError(
                    f"{where} can't be written: no schema is registered as {self._subject} at {self._url}: "
                    "give one with --schema FILE, or register it by a producer"
                ) from error
            raise UsageError(
                f"{where} can't be written: the registry at {self._url} refuses the schema for "
                f"{self._subject}: {error}"
            ) from error
        return self._make_serializer(), parsed(schema)

    def _imports(self, schema: Any) -> Iterator[ImportedSchema]:
        for each in schema.references or ():
            other = self._client.get_version(each.subject, each.version).schema
            yield from self._imports(other)
            yield ImportedSchema(each.name, str(other.schema_str))


def _comparable(value: Any) -> Any:
    """A field's value as the auditor compares and adds up."""
    match value:
        case dt.datetime():
            return (value.replace(tzinfo=value.tzinfo or dt.UTC) - _EPOCH) // _MS  # a local one: as if in UTC
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            return value
