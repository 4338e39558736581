"""Json: the format of JSON objects, one in each value.

What is a good value (RFC 8259, and nothing else):

    number for an int column    integral digits only: 1, never 1.0 or 1e3; within the column's range
    number for a float column   any JSON number that a double can hold (1e400 can't be); NaN is no JSON
    number for a decimal column any JSON number, or one in text; all of its digits must fit in
    text                        UTF-8, no lone surrogates
    bytes                       text in base64
    datetime, date, time        text as RFC 3339 writes it, with an offset (see `zone`) unless the Arrow type
                                has no time zone; digits finer than the column's unit are cut off
    timedelta                   text as ISO 8601 writes it, in days and less: "PT1.5S"
    an Enum, a Literal          one of its values
    UUID                        text, in any of the usual forms
    tuple, set, list            an array; a tuple's has its length, and of a set what comes twice counts once
    dict                        an object; keys that are no text are written as text
    a union                     an object whose tag says which type it is
    Any                         any value
    a name that comes twice     the last one counts, as in most parsers; each must have the right type
    a field nobody declared     see `extra`
    a missing field             bad, unless it has a default; a nullable column of an Arrow schema may
                                be missing and is null then
    null                        bad, unless the field is `X | None` (or the column nullable)
    blank, an array, two values bad

Fields that no column needs are checked to be well formed, not to be UTF-8 or within range.

With a registry each value has a header with the id of its schema (Confluent's wire format), and must be what
that JSON Schema says, or the one that is given.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from onceflow.connectors.formats.format import Decoder, Encoder
from onceflow.connectors.formats.json.encode import JsonEncoder
from onceflow.connectors.formats.json.registered import CheckedJsonDecoder, CheckedJsonEncoder
from onceflow.connectors.formats.json.schema_checks import JsonSchema, parse_registered, schema_of_rows
from onceflow.connectors.formats.json.strict import JsonDecoder, OnNull, has_plain_types
from onceflow.connectors.formats.json.structs import Reading
from onceflow.connectors.formats.json.unknown_fields import (
    COLUMN,
    CollectingJsonDecoder,
    check_has_place,
)
from onceflow.connectors.formats.registry.options import (
    RegistryOption,
    SubjectStrategy,
    check_choices,
    check_registry,
    open_schemas,
    subject_of,
)
from onceflow.connectors.formats.registry.schemas import (
    SchemaReference,
    Schemas,
    WrittenSchema,
    schema_text,
)
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.types.column_forms import outside_name
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType

Extra = Literal["ignore", "forbid", "collect"]


@explained
@dataclass(frozen=True)
class Json:
    """`Json(Purchase)` decodes into the columns of a record type or an Arrow schema; `Json()` encodes any
    rows, as every Json does.

    `on_null` says what a missing value (a Kafka tombstone) means: "error": a bad record;
    "skip": no row; "nulls": a row of nulls, for which every field must be nullable.

    `extra` says what becomes of an undeclared field: "ignore": it is left out; "forbid": the record is bad,
    at any depth; "collect": those of the outermost object go into the record's field `extra: dict[str, Any]`,
    and are written back from there. None: the record type decides (pydantic's extra="forbid", msgspec's
    forbid_unknown_fields); otherwise they are ignored.

    `zone` ("Europe/Berlin") is the time zone of datetimes without an offset. A local time that occurs twice
    there, or never, makes a bad record. None: so does every datetime without an offset.

    `json_schema` (text, or a dict) is the schema to which every value that is read or written must conform.
    With a `registry` (the URL of a schema registry; settings of confluent-kafka's SchemaRegistryClient under
    their own names; or a mapping of ids to schemas) values have Confluent's wire format. If no schema is
    given, they are validated against the one they were written with; `validate=False` switches this off.
    Rows are written with the given schema, or with one made from their columns, whose title is `name`;
    `references` are what a given one refers to. For `subject`, `subject_strategy`, `auto_register` and
    `registry_timeout` see `Avro`.

    Raises OptionError or GraphError at once if a type has no JSON form.
    """

    of: type | pa.Schema | None = None
    on_null: OnNull = "error"
    extra: Extra | None = None
    zone: str | None = None
    registry: RegistryOption | None = field(default=None, repr=False)
    json_schema: str | Mapping[str, Any] | None = field(default=None, repr=False)
    validate: bool = True
    subject: str | None = None
    subject_strategy: SubjectStrategy = "topic"
    auto_register: bool = True
    name: str | None = None
    references: Sequence[SchemaReference] = ()
    registry_timeout: str | int = "1 min"
    _described: RecordType | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.on_null not in ("error", "skip", "nulls"):
            raise OptionError(f'on_null={self.on_null!r}: write "error", "skip" or "nulls"')
        if self.extra not in (None, "ignore", "forbid", "collect"):
            raise OptionError(f'extra={self.extra!r}: write "ignore", "forbid" or "collect"')
        self._reading()
        self._check_registry()
        if self.of is None:
            return
        if not isinstance(self.of, pa.Schema) and not is_record_type(self.of):
            raise OptionError(f"Json({self.of!r}): give a dataclass, a NamedTuple or a pyarrow.Schema")
        if not isinstance(self.of, pa.Schema):
            object.__setattr__(self, "_described", describe_record(self.of))
        schema = self._schema_or_raise()
        required = [column.name for column in schema if not column.nullable]
        if self.on_null == "nulls" and required:
            raise OptionError(f'on_null="nulls" needs every field to be nullable; {required[0]!r} is not')
        if self.extra == "collect":
            check_has_place(self._described)
        self._judge(schema)

    @property
    def schema(self) -> pa.Schema | None:
        if self.of is None or isinstance(self.of, pa.Schema):
            return self.of
        return None if self._described is None else self._described.schema

    @property
    def record_type(self) -> type | None:
        return None if self.of is None or isinstance(self.of, pa.Schema) else self.of

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        decoder = self._plain_decoder(columns)
        if self.registry is None and self.json_schema is None:
            return decoder
        schemas = None if self.registry is None else self._open()
        return CheckedJsonDecoder(decoder, self._own_schema(), schemas, self.validate)

    def _plain_decoder(self, columns: frozenset[str] | None) -> Decoder:
        schema = self._schema_or_raise()
        if columns is not None:
            schema = pa.schema([column for column in schema if column.name in columns])
        if self.extra == "collect" and COLUMN in schema.names:
            rest = pa.schema([column for column in schema if column.name != COLUMN])
            known = [outside_name(c) for c in self._schema_or_raise() if c.name != COLUMN]
            return CollectingJsonDecoder(self._judge(rest), schema, known)
        judge = self._judge(schema)
        if not (ops().are_compiled and self._is_plain(schema)):
            return judge
        from onceflow.connectors.formats.json.bulk import BulkJsonDecoder  # imports numba

        return BulkJsonDecoder(judge, self._described)

    def encoder(self, schema: pa.Schema) -> Encoder:
        """See Format. A schema is registered, or looked up, when the first batch is encoded, so that building
        a graph needs no registry."""
        encoder = JsonEncoder(schema, COLUMN if self.extra == "collect" else None)
        if self.registry is None and self.json_schema is None:
            return encoder
        given = self.json_schema
        text = schema_text(schema_of_rows(schema, self._title) if given is None else given)
        schema_id: Callable[[], int] | None = None
        if self.registry is not None:
            schemas, written = self._open(), WrittenSchema("JSON", text, tuple(self.references))
            schema_id = lambda: schemas.id_of(written, self.subject, self.auto_register)  # noqa: E731
        return CheckedJsonEncoder(encoder, self._own_schema() if self.validate else None, schema_id)

    def for_topic(self, topic: str, part: Literal["key", "value"]) -> Json:
        """See TopicFormat: the subject is the topic's, unless one is given."""
        if self.subject is not None or self.registry is None:
            return self
        found = copy.copy(self)  # with what was found out about the type; a slot can't find it out again
        subject = subject_of(self.subject_strategy, topic, part, self._title, "Json")
        object.__setattr__(found, "subject", subject)
        return found

    # --- Parts ---

    @property
    def _title(self) -> str:
        """The name of the record that is written."""
        title = self.json_schema.get("title") if isinstance(self.json_schema, Mapping) else None
        record = "Record" if self._described is None else self._described.name.split("[")[0]
        return self.name or str(title or record)

    def _own_schema(self) -> JsonSchema | None:
        if self.json_schema is None:
            return None
        written = WrittenSchema("JSON", schema_text(self.json_schema), tuple(self.references))
        return JsonSchema(written.as_registered())

    def _open(self) -> Schemas[JsonSchema]:
        return open_schemas(self.registry, self.registry_timeout, "JSON", parse_registered)

    def _check_registry(self) -> None:
        if self.json_schema is None and self.references:
            raise OptionError("references= are of a JSON Schema: give that, too")
        if self.registry is None and self.subject is not None:
            raise OptionError("subject= is where a schema is registered: give registry=, too")
        self._own_schema()
        if self.registry is not None:
            check_choices(self.on_null, "confluent", self.subject_strategy)
            check_registry("JSON", self.registry, "leave it out for plain JSON")
            self._open()  # a wrong setting is refused here; nothing is connected

    def _judge(self, schema: pa.Schema) -> JsonDecoder:
        return JsonDecoder(schema, self._described, self.on_null, self._reading())

    def _is_plain(self, schema: pa.Schema) -> bool:
        """Whether the kernel knows what is a good value: all of the judge's rules for these columns."""
        record = self._described
        if self.extra == "forbid" or not has_plain_types(schema):
            return False
        if record is None:
            return True
        is_open = self.extra is not None or not record.refuses_unknown
        return is_open and all(f.type.is_plain for f in record.fields if f.name in schema.names)

    def _reading(self) -> Reading:
        try:
            zone = None if self.zone is None else ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
            raise OptionError(
                f'zone={self.zone!r} is not an IANA time zone: write one as in "Europe/Berlin"'
            ) from error
        return Reading(None if self.extra is None else self.extra == "forbid", zone)

    def _schema_or_raise(self) -> pa.Schema:
        schema: Any = self.schema
        if schema is None:
            raise OptionError(
                "Json() without a type can only encode; to read, say what is in it: Json(Purchase)"
            )
        return schema
