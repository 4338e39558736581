"""What is known of a type of values or records, as data that travels to the slots.

`record_types.py` finds it out when the graph is built. A slot works from this alone: it never looks into a
class of the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types import column_forms
from onceflow.runtime.types.column_forms import described

DECIMAL_PRECISION = 38
"""The most digits that a Decimal's column can have, those behind the point among them."""
DECIMAL_SCALE = 18
"""The digits behind the point where no Scale says another number."""


@explained
@dataclass(frozen=True, slots=True)
class Scale:
    """How many digits a Decimal has behind the point, and at most at all: `Annotated[Decimal, Scale(2)]`."""

    digits: int
    precision: int = DECIMAL_PRECISION


@explained
class FormerName:
    """What a field was called in state that was kept before: `Annotated[int, FormerName("amount")]`. Of
    several names the first counts that is there; the field's own goes before all of them."""

    def __init__(self, *names: str) -> None:
        """Raises GraphError if there is none, or one is no name."""
        if not names or not all(isinstance(name, str) and name for name in names):
            raise GraphError(
                f"FormerName({', '.join(map(repr, names))}): say what the field was called, as in "
                'FormerName("amount")'
            )
        self.names = names


@dataclass(frozen=True, slots=True)
class Default:
    """What a field is if nothing is given for it: a value, or what a function of the user's makes."""

    value: Any = None
    factory: Callable[[], Any] | None = None

    def make(self) -> Any:
        return self.value if self.factory is None else self.factory()


# --- What values are ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plain:
    """Arrow's own Python value: str, int, float, bool, bytes, datetime, date."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A `time` without a zone, or a `timedelta`."""

    of: Literal["time", "timedelta"]


@dataclass(frozen=True, slots=True)
class Decimals:
    """A Decimal. `is_stated`: the user said the scale; else zeros at the end mean nothing."""

    precision: int
    scale: int
    is_stated: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some texts or integers: of a Literal, or of an Enum by value (`enum` is the class)."""

    values: tuple[str, ...] | tuple[int, ...]
    enum: Any = None


@dataclass(frozen=True, slots=True)
class Uuid:
    """A UUID, kept as text."""


@dataclass(frozen=True, slots=True)
class JsonValue:
    """Any: None, bool, int, float, str, and lists and dicts of these, kept as JSON text."""


@dataclass(frozen=True, slots=True)
class ListOf:
    """Any number of values. Those of a set lie in an order that hangs on the values alone."""

    items: ValueType
    container: Literal["list", "tuple", "set", "frozenset"]

    @property
    def is_set(self) -> bool:
        return self.container in ("set", "frozenset")


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A tuple of a fixed length: a struct with the fields f0, f1, ..."""

    parts: tuple[ValueType, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"f{i}" for i in range(len(self.parts)))


@dataclass(frozen=True, slots=True)
class MapOf:
    """A dict."""

    keys: ValueType
    values: ValueType


@dataclass(frozen=True, slots=True)
class RecordOf:
    """A record."""

    record: RecordType


@dataclass(frozen=True, slots=True)
class UnionOf:
    """A record of one of several types, told by its tag. `tag` is the field that has it in JSON; `variants`
    the record types by tag; `is_field`: whether the records have that field, too (else it is of the type
    itself, as msgspec has it)."""

    tag: str
    variants: tuple[tuple[str, RecordType], ...]
    is_field: bool

    def record(self, tag: str) -> RecordType | None:
        return next((record for name, record in self.variants if name == tag), None)


Kind: TypeAlias = (
    Plain | Clock | Decimals | Choice | Uuid | JsonValue | ListOf | TupleOf | MapOf | RecordOf | UnionOf
)

_FORMS: dict[type, str] = {
    JsonValue: column_forms.JSON,
    Uuid: column_forms.UUID,
    TupleOf: column_forms.TUPLE,
    UnionOf: column_forms.UNION,
}


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of values. `said` is how the user calls it: `int`, `set[str]`, `Color`."""

    arrow: pa.DataType
    nullable: bool
    is_immutable: bool
    """No code can change a value in place."""
    kind: Kind = Plain()
    said: str = ""

    @property
    def items(self) -> ValueType | None:
        """The type of a list's items, or of a map's values."""
        if isinstance(self.kind, ListOf):
            return self.kind.items
        return self.kind.values if isinstance(self.kind, MapOf) else None

    @property
    def record(self) -> RecordType | None:
        """The record type of a struct."""
        return self.kind.record if isinstance(self.kind, RecordOf) else None

    @property
    def is_plain(self) -> bool:
        """Whether Arrow's own values are the user's, so that nothing has to be done to a single one: plain
        values, lists of them, dicts of them by text, and records with nothing else."""
        match self.kind:
            case Plain():
                return True
            case ListOf(items, container):
                return container == "list" and items.is_plain
            case MapOf(keys, values):
                return keys.arrow == pa.string() and keys.is_plain and values.is_plain
            case RecordOf(record):
                return record.is_plain
        return False

    @property
    def is_single(self) -> bool:
        """Whether a value is one piece, which no code can change and whose encoder sees all of it."""
        return isinstance(self.kind, Plain | Clock | Decimals | Choice | Uuid)

    def field(self, name: str, outside: str = "") -> pa.Field:
        """A column of these values. `outside`: its name in JSON and Avro, if that is another."""
        form = _FORMS.get(type(self.kind), "")
        if isinstance(self.kind, Decimals) and not self.kind.is_stated:
            form = column_forms.NUMBER
        return described(pa.field(name, self.arrow, self.nullable), form, outside)


# --- What records are -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field that is given when a record is made. `default`: None if it must be."""

    name: str
    type: ValueType
    default: Default | None
    by_keyword: bool
    """Whether only a keyword says which field it is: it is keyword-only, or comes after an InitVar."""
    outside: str = ""
    """Its name in JSON and Avro; the empty string: its own."""
    keyword: str = ""
    """What it is called when a record is made; the empty string: its own name."""
    may_be_missing: bool = False
    """Whether null is a record without it, as in a TypedDict."""
    former_names: tuple[str, ...] = ()
    """What it was called in state that was kept before."""

    @property
    def column(self) -> pa.Field:
        return self.type.field(self.name, self.outside)


@dataclass(frozen=True, slots=True)
class RecordType:
    """A record type, described. Picklable with the type itself, which is called and never looked into."""

    of: type
    """What makes a record: the class; dict of a TypedDict."""
    name: str
    fields: tuple[RecordField, ...]
    is_immutable: bool
    refuses_unknown: bool = False
    """Whether the type itself says that a field which it does not have is a mistake."""

    @property
    def is_dict(self) -> bool:
        """Whether a record is a dict."""
        return self.of is dict

    @property
    def is_plain(self) -> bool:
        """See ValueType.is_plain; a struct has the fields' own names."""
        return not self.is_dict and all(f.type.is_plain and not f.outside for f in self.fields)

    @property
    def schema(self) -> pa.Schema:
        """The columns, one for each field, in its order."""
        return pa.schema([field.column for field in self.fields])

    @property
    def defaults(self) -> dict[str, Default]:
        """The defaults of the fields that may be missing, by name."""
        return {field.name: field.default for field in self.fields if field.default is not None}

    def field(self, name: str) -> RecordField | None:
        return next((field for field in self.fields if field.name == name), None)
