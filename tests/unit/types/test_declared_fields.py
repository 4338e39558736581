"""What each library says of a record type: names, defaults, keywords; and what of it has no columns."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, NewType, NotRequired, Required, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.record_types import arrow_schema, describe_record
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.value_types import Default, Scale

T = TypeVar("T")
S = TypeVar("S")
UserId = NewType("UserId", int)


@attrs.define(kw_only=True)
class Attrs:
    _hidden: int
    tags: list[str] = attrs.field(factory=list, metadata={"alias": "theTags"})
    total: int = attrs.field(init=False, default=0)


@attrs.frozen
class FrozenAttrs:
    x: int = 3


class Model(pydantic.BaseModel):
    x: int = pydantic.Field(alias="theX")
    tags: list[str] = pydantic.Field(default_factory=list)
    price: pydantic.condecimal(max_digits=9, decimal_places=3) = Decimal(1)  # type: ignore[valid-type]


class StrictModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, alias_generator=str.upper)
    x: int


@pydantic.dataclasses.dataclass(frozen=True)
class Validated:
    x: int = pydantic.Field(gt=0)


class Struct(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    first_name: str
    tags: list[str] = []
    age: int = msgspec.field(default=7, name="AGE")


class Total(TypedDict):
    x: int
    y: NotRequired[str]


class Below(Total, total=False):
    z: Required[int]
    w: float


@dataclass(frozen=True)
class Pair(Generic[T, S]):
    first: T
    second: S | None


@dataclass(frozen=True)
class Named(Pair[int, T]):
    name: T
    user: Annotated[UserId, "a note"]


class Generated(msgspec.Struct, Generic[T]):
    item: list[T]


class GenericModel(pydantic.BaseModel, Generic[T]):
    item: T


def described(record_type: Any) -> dict[str, tuple[Default | None, str, str]]:
    return {f.name: (f.default, f.outside, f.keyword or f.name) for f in describe_record(record_type).fields}


def test_attrs() -> None:
    assert described(Attrs) == {
        "_hidden": (None, "", "hidden"),
        "tags": (Default(factory=list), "theTags", "tags"),
    }
    assert not describe_record(Attrs).is_immutable
    assert describe_record(FrozenAttrs).is_immutable


def test_pydantic() -> None:
    assert described(Model) == {
        "x": (None, "theX", "theX"),
        "tags": (Default(factory=list), "", "tags"),
        "price": (Default(Decimal(1)), "", "price"),
    }
    assert str(arrow_schema(Model).field("price").type) == "decimal128(9, 3)"
    strict = describe_record(StrictModel)
    assert strict.refuses_unknown
    assert strict.is_immutable
    assert described(StrictModel) == {"x": (None, "X", "X")}
    assert not describe_record(Model).refuses_unknown


def test_msgspec() -> None:
    assert described(Struct) == {
        "first_name": (None, "firstName", "first_name"),
        "tags": (Default(factory=list), "", "tags"),
        "age": (Default(7), "AGE", "age"),
    }
    assert describe_record(Struct).refuses_unknown


def test_a_typed_dict_says_what_may_be_missing() -> None:
    found = {field.name: field.may_be_missing for field in describe_record(Below).fields}
    assert found == {"x": False, "y": True, "z": False, "w": True}


def test_type_variables_are_those_of_the_class_that_has_the_field() -> None:
    schema = arrow_schema(Named[str])
    assert [str(field.type) for field in schema] == ["int64", "string", "string", "int64"]
    assert describe_record(Named[str]).name == "Named[str]"
    assert str(arrow_schema(Generated[int]).field("item").type) == "list<item: int64 not null>"
    assert str(arrow_schema(GenericModel[int]).field("item").type) == "int64"


MADE: list[tuple[Any, Any]] = [
    (Attrs, Attrs(hidden=1)),
    (FrozenAttrs, FrozenAttrs()),
    (Model, Model(theX=1, tags=["a"])),
    (StrictModel, StrictModel(X=1)),
    (Validated, Validated(1)),
    (Struct, Struct("a", age=1)),
    (Below, {"x": 1, "z": 2}),
    (Named[str], Named(1, None, "a", UserId(2))),
    (Generated[int], Generated([1])),
    (GenericModel[int], GenericModel[int](item=1)),
]


@pytest.mark.parametrize(("record_type", "record"), MADE, ids=lambda each: repr(each)[:40])
def test_records_are_made_as_the_library_makes_them(record_type: Any, record: Any) -> None:
    assert is_record_type(record_type)
    batch = RecordWriter.of(describe_record(record_type)).write([record])
    (found,) = RecordReader(record_type).read(batch)
    assert found == record
    assert type(found) is type(record)


# --- What is refused ------------------------------------------------------------------------------


@attrs.define
class TakesSelf:
    x: int
    y: int = attrs.field(default=attrs.Factory(lambda self: self.x, takes_self=True))


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    x: int


class Root(pydantic.RootModel[int]):
    pass


class TwoNames(pydantic.BaseModel):
    x: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Paths(pydantic.BaseModel):
    x: int = pydantic.Field(validation_alias=pydantic.AliasChoices("a", "b"), serialization_alias="a")


class OfOthers(pydantic.BaseModel):
    x: int
    y: int = pydantic.Field(default_factory=lambda data: data["x"])


class Array(msgspec.Struct, array_like=True):
    x: int


class MaybeNone(TypedDict):
    x: NotRequired[int | None]


@dataclass
class OneNameTwice:
    x: int
    y: int = field(metadata={"alias": "x"})


@dataclass
class NoName:
    x: int = field(metadata={"alias": 1})


class Bare(NamedTuple):
    x: list  # type: ignore[type-arg]


@dataclass
class TooFine:
    x: Annotated[Decimal, Scale(40)]


@dataclass(frozen=True)
class Unsaid(Pair[int, T]):
    """Its T is not that of the class above, which is int."""


REFUSED: list[tuple[Any, str]] = [
    (TakesSelf, "TakesSelf.y has a default that takes the record itself"),
    (Open, r'Open keeps unknown fields \(extra="allow"\), for which there are no columns: give it a field'),
    (Root, "Root is a RootModel, which has no columns"),
    (TwoNames, "TwoNames.x is read as 'in' and written as 'out': a field has one name outside"),
    (Paths, "Paths.x is read as AliasChoices"),
    (OfOthers, "OfOthers.y has a default that is made of the other fields"),
    (Array, "Array is array_like, which has no columns by name"),
    (MaybeNone, "MaybeNone.x may be missing and may be None, which a column can't tell apart"),
    (OneNameTwice, "OneNameTwice.y is called 'x' outside, as x is"),
    (NoName, "NoName.x has the alias 1: it must be one name, as text"),
    (Bare, r"Bare.x is a list, which has no Arrow type: say of what, as in list\[str\]; the page"),
    (TooFine, "TooFine.x has 40 digits behind the point of 38; a column has up to 38"),
    (Named, "Named.second is the type variable ~T: say what it is"),
    (Unsaid, "Unsaid.second is the type variable ~T: say what it is"),
]


@pytest.mark.parametrize(("record_type", "sentence"), REFUSED, ids=lambda each: str(each)[:20])
def test_what_has_no_columns_is_refused_in_a_sentence(record_type: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        describe_record(record_type)


def test_neither_attrs_nor_pydantic_is_imported_for_it() -> None:
    ours = [name for name, module in sys.modules.items() if name.startswith("onceflow.") and module]
    wanted = {"attr", "attrs", "pydantic"}
    assert not [name for name in ours if wanted & vars(sys.modules[name]).keys()]
