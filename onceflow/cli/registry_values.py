"""RegistryValues: values in Avro by a schema registry, for the commands that print and write records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from onceflow.runtime.errors import OnceflowError, OptionError, UsageError

_REQUEST_S = 10
_NO_SUBJECT = 40401
"""What a registry says where a subject has no schema."""


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
        client = SchemaRegistryClient({"url": url, "timeout": _REQUEST_S, "max.retries": 2})
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
        """Raises OnceflowError saying why a value can't be decoded."""
        try:
            return self._deserializer(raw, self._context)
        except Exception as error:  # the library raises what comes along
            raise OnceflowError(f"a value is no Avro by the registry at {self._url}: {error}") from error

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
