"""Avro: the format of Avro records, in Confluent's wire format or plain.

What is a good value:

    the header            byte 0, then the id of a schema that the registry has (Confluent's wire format)
    the datum             exactly as long as its schema says; nothing left over
    a field nobody reads  skipped: it must be well formed; its text is not checked to be UTF-8
    a missing field       its default: of the reader's Avro schema, or of the dataclass; a nullable column of
                          an Arrow schema is null. Without a default all records of that schema are bad
    null                  bad, unless the field is `X | None` (or the column nullable)
    numbers               int, long, float, double widen; nothing narrows, nothing wraps around
    text and bytes        are read as each other; text must be UTF-8; an enum is text
    times                 years 1 to 9999; in the column's unit, finer digits are cut off
    arrays, maps          at most as many items as bytes are left

Schemas with recursive types, unions of several types (other than with null) and decimals of more than 38
digits have no columns; in fields that nobody reads they are skipped.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from onceflow.connectors.formats.avro.decode import AvroDecoder, OnNull
from onceflow.connectors.formats.avro.encode import AvroEncoder
from onceflow.connectors.formats.avro.schema.derived import avro_of_arrow
from onceflow.connectors.formats.avro.schema.nodes import AvroJson, Node, parse_registered, parse_schema
from onceflow.connectors.formats.avro.schema.target import Target, targets_of_arrow, targets_of_avro
from onceflow.connectors.formats.format import Decoder, Encoder
from onceflow.connectors.formats.registry.options import (
    Framing,
    RegistryOption,
    SubjectStrategy,
    check_choices,
    check_registry,
    open_schemas,
    subject_of,
)
from onceflow.connectors.formats.registry.schemas import SchemaReference, Schemas, WrittenSchema
from onceflow.connectors.formats.wire_columns import AVRO_WIRE, WireDecoder, WireEncoder
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType


@explained
@dataclass(frozen=True)
class Avro:
    """`Avro(Purchase, registry="http://localhost:8081")` decodes into the columns of a dataclass, a
    NamedTuple, an Arrow schema or an Avro schema (JSON text, or the same as a dict); `Avro(registry=...)`
    encodes any rows, as every Avro does.

    `registry`: the URL of a schema registry; or the settings of confluent-kafka's SchemaRegistryClient under
    their own names ({"url": ..., "basic.auth.user.info": ...}); or a mapping of ids to schemas. Without
    one, use `framing="none"`: plain datums, whose writer's schema is the reader's.

    Rows are written with the Avro schema if one is given, and otherwise with one made from their columns,
    in which the record is called `name` (the record type's name, or Record). It is registered under `subject`
    (if none is given, a KafkaSink uses `subject_strategy`: "topic": `<topic>-value` or
    `<topic>-key`; "record": the record's full name; "topic_record": `<topic>-<full name>`), or only looked up
    there if `auto_register` is False. `references`: the schemas that the given one refers to by name.

    `on_null` says what a missing value (a Kafka tombstone) means: "error": a bad record; "skip": no row;
    "nulls": a row of nulls, for which every field must be nullable. `registry_timeout`: how long to wait
    for a registry that is unavailable before the attempt fails.

    Raises OptionError or GraphError at once if a type has no Avro form or an option is wrong.
    """

    of: type | pa.Schema | AvroJson | None = None
    registry: RegistryOption | None = field(default=None, repr=False)
    framing: Framing = "confluent"
    subject: str | None = None
    subject_strategy: SubjectStrategy = "topic"
    auto_register: bool = True
    name: str | None = None
    on_null: OnNull = "error"
    registry_timeout: str | int = "1 min"
    references: Sequence[SchemaReference] = ()

    def __post_init__(self) -> None:
        if isinstance(self.of, Mapping):
            object.__setattr__(self, "of", json.dumps(dict(self.of)))
        self._check_options()
        if self.of is None:
            return
        if not (isinstance(self.of, str | pa.Schema) or is_record_type(self.of)):
            raise OptionError(
                f"Avro({self.of!r}): give a dataclass, a NamedTuple, a pyarrow.Schema or an Avro schema"
            )
        required = [column.name for column in self._schema_or_raise() if not column.nullable]
        if self.on_null == "nulls" and required:
            raise OptionError(f'on_null="nulls" needs every field to be nullable; {required[0]!r} is not')
        if self.framing == "none":
            self.decoder()

    @property
    def schema(self) -> pa.Schema | None:
        if self._described is not None:
            return self._described.schema
        return None if self.of is None else pa.schema([target.field for target in self._targets])

    @property
    def record_type(self) -> type | None:
        of: Any = self.of
        return None if of is None or isinstance(of, pa.Schema | str) else of

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        return self.decoder_of(self._own_schema() if self.framing == "none" else self._open(), columns)

    def decoder_of(self, schemas: Schemas[Node] | Node, columns: frozenset[str] | None = None) -> Decoder:
        """A decoder of what was written with these schemas, or as plain datums of this one; then it raises
        UnreadableSchemaError if they can't be read as this type."""
        schema = self._schema_or_raise()
        wanted = [columns is None or name in columns for name in schema.names]
        targets = [target for target, is_ in zip(self._targets, wanted, strict=True) if is_]
        decoder = AvroDecoder(targets, schemas, self.on_null)
        if self._described is None or self._described.is_plain:
            return decoder
        fields = [field for field, is_ in zip(self._described.fields, wanted, strict=True) if is_]
        return WireDecoder(
            decoder, pa.schema([f.column for f in fields]), [f.type for f in fields], AVRO_WIRE
        )

    def encoder(self, schema: pa.Schema) -> Encoder:
        """See Format. The schema is registered, or looked up, when the first batch is encoded, so that
        building a graph needs no registry."""
        wire, written = _on_wire(schema), self.written_schema(schema)
        schema_id: Callable[[], int | None] = lambda: None  # noqa: E731
        if self.framing != "none":
            schemas = self._open()
            text = WrittenSchema("AVRO", json.dumps(written), tuple(self.references))
            schema_id = lambda: schemas.id_of(text, self.subject, self.auto_register)  # noqa: E731
        node = parse_schema(written) if self._avro is None else self._avro
        encoder = AvroEncoder(wire, node, schema_id)
        return encoder if wire == schema else WireEncoder(encoder, schema, AVRO_WIRE)

    def written_schema(self, schema: pa.Schema) -> dict[str, Any]:
        """The Avro schema that such rows are written with. Raises GraphError naming a column without one."""
        if self._avro is None:
            return avro_of_arrow(_on_wire(schema), self._record_name)
        assert isinstance(self.of, str)
        written: dict[str, Any] = json.loads(self.of)
        return written

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Avro:
        """See TopicFormat: the subject is the topic's, unless one is given."""
        if self.subject is not None or self.framing == "none":
            return self
        subject = subject_of(self.subject_strategy, topic, part, self._full_name, "Avro")
        found = copy.copy(self)  # with what was found out about the type; a slot can't find it out again
        object.__setattr__(found, "subject", subject)
        return found

    # --- Parts ---

    @cached_property
    def _avro(self) -> Node | None:
        if not isinstance(self.of, str):
            return None
        return parse_registered(WrittenSchema("AVRO", self.of, tuple(self.references)).as_registered())

    @cached_property
    def _targets(self) -> tuple[Target, ...]:
        """Found when the format is made, and shipped with it."""
        if self._avro is not None:
            return targets_of_avro(self._avro)
        if isinstance(self.of, pa.Schema):
            return targets_of_arrow(self.of, None)
        described = self._described
        assert described is not None
        return targets_of_arrow(_on_wire(described.schema), described)

    @cached_property
    def _described(self) -> RecordType | None:
        """Found when the format is made, and shipped with it."""
        return None if self.record_type is None else describe_record(self.record_type)

    @property
    def _record_name(self) -> str:
        """The name of the record that is written: that of the class, without the parameters of generics."""
        return self.name or ("Record" if self._described is None else self._described.name.split("[")[0])

    @property
    def _full_name(self) -> str:
        """The full name of the record that is written."""
        return self._record_name if self._avro is None else self._avro.name

    def _schema_or_raise(self) -> pa.Schema:
        schema = self.schema
        if schema is None:
            raise OptionError(
                "Avro() without a type can only encode; to read, say what is in it: Avro(Purchase, ...)"
            )
        return schema

    def _own_schema(self) -> Node:
        """The schema of plain datums."""
        if self._avro is not None:
            return self._avro
        return parse_schema(avro_of_arrow(_on_wire(self._schema_or_raise()), "Record"))

    def _open(self) -> Schemas[Node]:
        return open_schemas(self.registry, self.registry_timeout, "AVRO", parse_registered)

    def _check_options(self) -> None:
        check_choices(self.on_null, self.framing, self.subject_strategy)
        duration_ms(self.registry_timeout, "registry_timeout")
        if self.framing == "none":
            if self.registry is not None or self.subject is not None or self.references:
                raise OptionError(
                    'framing="none" has no place for a schema id: leave out registry, subject and references'
                )
            return
        check_registry("AVRO", self.registry, 'framing="none" for plain datums')
        if self.references and not isinstance(self.of, str):
            raise OptionError("references= are of an Avro schema: give that, too")
        self._open()  # a wrong setting is refused here; nothing is connected


def _on_wire(schema: pa.Schema) -> pa.Schema:
    return pa.schema([AVRO_WIRE.field(column) for column in schema])
