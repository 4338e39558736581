"""RegistryValues: values in Avro by a schema registry, for commands that print, write and judge records."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
from collections.abc import Callable
from typing import Any

import msgspec

from onceflow.runtime.errors import OnceflowError, OptionError, Unavailable, UsageError

_REQUEST_S = 10
_NOT_FOUND = 404
_NO_SUBJECT = 40401
"""What a registry says where a subject has no schema."""
_EPOCH, _MS = dt.datetime.fromtimestamp(0, dt.UTC), dt.timedelta(milliseconds=1)
_MAGIC, _HEADER = b"\0", 5
"""The first byte of a value whose schema's id comes next, and the length of both. No JSON begins with it."""


class RegistryValues:
    """Decodes and encodes by Confluent's own classes: the schema with the id that a value begins with, and
    the latest schema of the subject `<topic>-value`."""

    def __init__(self, url: str, topic: str) -> None:
        """Opens no connection. Raises OptionError if the packages for it are not installed."""
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient, avro
            from confluent_kafka.serialization import MessageField, SerializationContext
        except ModuleNotFoundError as error:
            raise OptionError(
                "--registry needs packages that are not installed: pip install 'onceflow[avro]' "
                f"(it lacks {error.name!r})"
            ) from error
        self._client = client = SchemaRegistryClient({"url": url, "timeout": _REQUEST_S, "max.retries": 2})
        self._url = url.rpartition("@")[2]
        self._context = SerializationContext(topic, MessageField.VALUE)
        library: Any = avro  # without types
        self._deserializer = library.AvroDeserializer(client)
        latest = {"auto.register.schemas": False, "use.latest.version": True}
        self._make_serializer: Callable[[], Any] = functools.partial(
            library.AvroSerializer, client, conf=latest
        )
        self._serializer: Any = None

    def decode(self, raw: bytes) -> Any:
        """Raises OnceflowError saying why a value can't be decoded, and Unavailable if the registry can't be
        asked."""
        self._ask_for_schema_of(raw)
        try:
            return self._deserializer(raw, self._context)
        except Exception as error:  # the library raises what comes along
            raise OnceflowError(f"a value is no Avro by the registry at {self._url}: {error}") from error

    def _ask_for_schema_of(self, raw: bytes) -> None:
        """Asked for alone, and kept by the client: what fails here but for an id that no schema has says
        something of the registry and nothing of the value."""
        if not raw.startswith(_MAGIC) or len(raw) < _HEADER:
            return
        try:
            self._client.get_schema(int.from_bytes(raw[len(_MAGIC) : _HEADER], "big"))
        except Exception as error:  # the library raises what comes along
            if getattr(error, "http_status_code", None) != _NOT_FOUND:
                raise Unavailable(
                    f"the schema registry at {self._url} can't be asked for a value's schema: {error}"
                ) from error

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
        """Raises UsageError that begins with `where`."""
        if self._serializer is None:
            self._serializer = self._make_serializer()
        try:
            return bytes(self._serializer(value, self._context))
        except Exception as error:  # the library raises what comes along
            subject = f"{self._context.topic}-value"
            if getattr(error, "error_code", None) == _NO_SUBJECT:
                raise UsageError(
                    f"{where} can't be written: no schema is registered as {subject} at {self._url}: "
                    "register one first, by a producer or the registry's own interface"
                ) from error
            raise UsageError(
                f"{where} can't be written by the latest schema of {subject} at {self._url}: {error}"
            ) from error


def _comparable(value: Any) -> Any:
    """A field's value as the auditor compares and adds up."""
    match value:
        case dt.datetime():
            return (value.replace(tzinfo=value.tzinfo or dt.UTC) - _EPOCH) // _MS  # a local one: as if in UTC
        case decimal.Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case _:
            return value
