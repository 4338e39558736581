"""Protobuf: the format of Protobuf messages, in Confluent's wire format or plain.

What is a good value:

    the header           byte 0, the id of a schema that the registry has, and which of its messages it is:
                         the one that is read (Confluent's wire format)
    the message          as Google's library parses it; text must be UTF-8
    an unknown field     skipped: it belongs to a later version of the schema
    a field that is not  zero, an empty text, list or map; null if a message tells whether it is there
    there                (`optional`, a message, a member of a oneof), which is bad where the record type has
                         no None; in proto2 the default that the schema says; bad if it is required
    an enum              its value's name, or its number where the record type has an int; a number without a
                         name is bad
    a oneof              a nullable column for each member, of which at most one is there
    Timestamp, Duration  within the years 1 to 9999 or 10,000 years; in the column's unit, finer digits are
                         cut off
    Decimal, date, time, text, in user types: "1.50", "2026-07-01"
    UUID
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from onceflow.connectors.formats.format import Decoder, Encoder
from onceflow.connectors.formats.protobuf.decode import OnNull, ProtobufDecoder
from onceflow.connectors.formats.protobuf.encode import ProtobufEncoder
from onceflow.connectors.formats.protobuf.fields import natural_schema
from onceflow.connectors.formats.protobuf.framing import Framed, framing_of
from onceflow.connectors.formats.protobuf.message_names import MessageNames, message_names
from onceflow.connectors.formats.protobuf.message_type import MessageType, message_type
from onceflow.connectors.formats.registry.options import (
    Framing,
    RegistryOption,
    SubjectStrategy,
    check_choices,
    check_registry,
    open_schemas,
    subject_of,
)
from onceflow.connectors.formats.registry.schemas import RegisteredSchema, Schemas, WrittenSchema
from onceflow.connectors.formats.wire_columns import PROTOBUF_WIRE, WireDecoder, WireEncoder
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType


@explained
@dataclass(frozen=True)
class Protobuf:
    """`Protobuf(shop_pb2.Purchase, registry="http://localhost:8081")` reads and writes messages of a class
    that protoc has generated; `Protobuf("shop.binpb", name="shop.Purchase", ...)` those of a descriptor set
    (`protoc --include_imports --descriptor_set_out=shop.binpb shop.proto`).

    The columns are the message's fields, or those of the record type or Arrow schema `of`, which may leave
    fields out.

    `registry`: the URL of a schema registry; or the settings of confluent-kafka's SchemaRegistryClient under
    their own names ({"url": ..., "basic.auth.user.info": ...}); or a mapping of ids to schemas, as text of a
    .proto file or a descriptor in base64. Without one, use `framing="none"`: messages alone.

    The message's file is registered under `subject` (if none is given, a KafkaSink uses
    `subject_strategy`: "topic": `<topic>-value` or `<topic>-key`; "record": the message's full name;
    "topic_record": `<topic>-<full name>`), and the files that it imports under their names; or they are only
    looked up there if `auto_register` is False.

    `on_null` says what a missing value (a Kafka tombstone) means: "error": a bad record; "skip": no row;
    "nulls": a row of nulls, for which every field must be nullable. `registry_timeout`: how long to wait
    for a registry that is unavailable before the attempt fails.

    Raises OptionError at once if a field has no column or an option is wrong.
    """

    message: Any
    registry: RegistryOption | None = field(default=None, repr=False)
    of: type | pa.Schema | None = None
    name: str | None = None
    framing: Framing = "confluent"
    subject: str | None = None
    subject_strategy: SubjectStrategy = "topic"
    auto_register: bool = True
    on_null: OnNull = "error"
    registry_timeout: str | int = "1 min"

    def __post_init__(self) -> None:
        self._check_options()
        object.__setattr__(self, "message", message_type(self.message, self.name))
        if self.of is not None and not isinstance(self.of, pa.Schema) and not is_record_type(self.of):
            raise OptionError(
                f"Protobuf(..., of={self.of!r}): give a dataclass, a NamedTuple or a pyarrow.Schema"
            )
        required = [column.name for column in self.schema if not column.nullable]
        if self.on_null == "nulls" and required:
            raise OptionError(f'on_null="nulls" needs every field to be nullable; {required[0]!r} is not')
        self._decoder_of(self._wire, None)  # a column that is no field is refused here

    @property
    def schema(self) -> pa.Schema:
        if self._described is not None:
            return self._described.schema
        return self._wire

    @property
    def record_type(self) -> type | None:
        of: Any = self.of
        return None if of is None or isinstance(of, pa.Schema) else of

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        wanted = [columns is None or name in columns for name in self.schema.names]
        wire = pa.schema([field for field, is_ in zip(self._wire, wanted, strict=True) if is_])
        framed = None if self.framing == "none" else Framed(self._message.name, self._open())
        decoder = self._decoder_of(wire, framed)
        if self._described is None or self._is_plain:
            return decoder
        fields = [field for field, is_ in zip(self._described.fields, wanted, strict=True) if is_]
        schema = pa.schema([f.column for f in fields])
        return WireDecoder(decoder, schema, [f.type for f in fields], PROTOBUF_WIRE)

    def encoder(self, schema: pa.Schema) -> Encoder:
        """See Format. The schema is registered, or looked up, when the first batch is encoded, so that
        building a graph needs no registry."""
        wire = pa.schema([PROTOBUF_WIRE.field(field) for field in schema])
        encoder = ProtobufEncoder(self._message, wire, self._head)
        return encoder if wire == schema else WireEncoder(encoder, schema, PROTOBUF_WIRE)

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Protobuf:
        """See TopicFormat: the subject is the topic's, unless one is given."""
        if self.subject is not None or self.framing == "none":
            return self
        subject = subject_of(self.subject_strategy, topic, part, self._message.name, "Protobuf")
        found = copy.copy(self)  # with what was found out about the types; a slot can't find it out again
        object.__setattr__(found, "subject", subject)
        return found

    # --- Parts ---

    @property
    def _message(self) -> MessageType:
        found: MessageType = self.message
        return found

    @cached_property
    def _described(self) -> RecordType | None:
        """Found when the format is made, and shipped with it."""
        return None if self.record_type is None else describe_record(self.record_type)

    @cached_property
    def _wire(self) -> pa.Schema:
        """The columns as the message has them."""
        if self._described is not None:
            return pa.schema([PROTOBUF_WIRE.field(column) for column in self._described.schema])
        return natural_schema(self._message.descriptor) if self.of is None else self.of

    @property
    def _is_plain(self) -> bool:
        """Whether the message's columns are the record type's."""
        assert self._described is not None
        return self._described.is_plain and self._wire.equals(self._described.schema)

    def _decoder_of(self, wire: pa.Schema, framed: Framed | None) -> ProtobufDecoder:
        return ProtobufDecoder(self._message, wire, framed, self.on_null)

    def _head(self) -> bytes:
        """What each written value begins with."""
        if self.framing == "none":
            return b""
        text = WrittenSchema("PROTOBUF", self._message.schema_text(), self._message.references())
        schema_id = self._open().id_of(text, self.subject, self.auto_register)
        return framing_of(schema_id, self._message.index_path())

    def _open(self) -> Schemas[MessageNames]:
        return open_schemas(self.registry, self.registry_timeout, "PROTOBUF", _names)

    def _check_options(self) -> None:
        check_choices(self.on_null, self.framing, self.subject_strategy)
        duration_ms(self.registry_timeout, "registry_timeout")
        if self.framing == "none":
            if self.registry is not None or self.subject is not None:
                raise OptionError(
                    'framing="none" has no place for a schema id: leave out registry and subject'
                )
            return
        check_registry("PROTOBUF", self.registry, 'framing="none" for messages alone')
        self._open()  # a wrong setting is refused here; nothing is connected


def _names(schema: RegisteredSchema) -> MessageNames:
    return message_names(schema.text)
