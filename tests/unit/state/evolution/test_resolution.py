"""Which types can be read as which, and what is said of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest

from onceflow.runtime.errors import GraphError
from onceflow.runtime.state.description import type_text
from onceflow.runtime.state.evolution.resolution import Change, UnresolvedError, changes
from onceflow.runtime.state.evolution.type_trees import tree_of, tree_of_text
from onceflow.runtime.types.record_types import describe_record, describe_type
from onceflow.runtime.types.value_types import FormerName, Scale


@dataclass
class Order:
    id: int
    amount: int


@dataclass
class Defaulted:
    id: int
    amount: int
    tags: list[str] = field(default_factory=list)


@dataclass
class Renamed:
    id: int
    total: Annotated[float, FormerName("sum", "amount")]


@dataclass
class Shorter:
    id: int


@dataclass
class Demanding:
    id: int
    amount: int
    currency: str


@dataclass
class Noted:
    id: int
    amount: int
    note: str | None


@dataclass
class Card:
    kind: Literal["card"]
    number: str


@dataclass
class Cash:
    kind: Literal["cash"]


@dataclass
class Cheque:
    kind: Literal["cheque"]
    bank: str


def read(was: Any, now: Any) -> list[Change]:
    """What is said of types as a manifest has them, in text; their Arrow types say the same."""
    kept, declared = describe_type(was, "test"), describe_type(now, "test")
    found = changes(tree_of_text(type_text(kept.arrow)), declared)
    assert found == changes(tree_of(kept.arrow), declared)
    return found


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (Order, Order, []),
        (Order, Defaulted, ["field 'tags' is new, and has its default for what was kept"]),
        (Order, Noted, ["field 'note' is new, and null for what was kept"]),
        (Order, Renamed, ["field 'total' was called 'amount'", "field 'total' is double, and int64"]),
        (list[Order], list[Noted], ["field '[].note' is new, and null for what was kept"]),
        (dict[str, int], dict[str, float], ["field '[...]' is double, and int64"]),
        (tuple[int, str], tuple[float, str], ["field 'f0' is double, and int64"]),
        (str, bytes, ["the value is binary, and string"]),
        (
            Annotated[Decimal, Scale(2, 10)],
            Annotated[Decimal, Scale(4, 12)],
            ["the value is decimal128(12, 4), and decimal128(10, 2)"],
        ),
        (list[int], list[int | None], ["field '[]' may be null, which it could not be"]),
        (Card | Cash, Card | Cash | Cheque, ["field 'cheque' is new, and null for what was kept"]),
    ],
)
def test_what_can_be_read_is_said(was: Any, now: Any, said: list[str]) -> None:
    found = read(was, now)
    assert [change.text for change in found] == said
    assert not any(change.is_drop for change in found)


def test_a_field_that_is_gone_is_a_loss() -> None:
    assert read(Order, Shorter) == [Change("field 'amount' is gone, with what it was", is_drop=True)]


@pytest.mark.parametrize(
    ("was", "now", "rule"),
    [
        (Order, Demanding, "field 'currency' is new and has no default: give it one, or say by FormerName"),
        (Noted, Demanding, "field 'currency' is new and has no default"),
        (list[int | None], list[int], "field '[]' may not be null, and what is kept may be"),
        (float, int, "the value can't be read as int64 where double was kept"),
        (int, str, "the value can't be read as string where int64 was kept"),
        (bool, int, "the value can't be read as int64 where bool was kept"),
        (Order, int, "the value can't be read as int64 where another type was kept"),
        (dict[str, int], dict[int, int], "the keys of a map can't become int64"),
        (Card | Cash | Cheque, Card | Cash, "field 'cheque', of a union or a tuple, is gone"),
        (tuple[int, str], tuple[int, str, str], "field 'f2' is new and has no default"),
        (tuple[int, str, str], tuple[int, str], "field 'f2', of a union or a tuple, is gone"),
        (Annotated[Decimal, Scale(4)], Annotated[Decimal, Scale(2)], "the value can't be read as decimal"),
        # More digits behind the point leave too few in front of it.
        (
            Annotated[Decimal, Scale(2, 10)],
            Annotated[Decimal, Scale(4, 10)],
            "the value can't be read as decimal",
        ),
    ],
)
def test_what_can_not_be_read_names_the_rule(was: Any, now: Any, rule: str) -> None:
    with pytest.raises(UnresolvedError) as raised:
        read(was, now)
    assert str(raised.value).startswith(rule)


def test_a_name_goes_before_former_names() -> None:
    @dataclass
    class Both:
        amount: int
        total: Annotated[int, FormerName("sum")] = 0

    @dataclass
    class Had:
        total: int
        sum: int
        amount: int

    assert read(Had, Both) == [Change("field 'sum' is gone, with what it was", is_drop=True)]


def test_a_former_name_that_a_field_has_now_is_refused() -> None:
    @dataclass
    class Swapped:
        a: Annotated[int, FormerName("b")]
        b: int

    with pytest.raises(GraphError, match=r"Swapped\.a has the former name 'b', which is that of Swapped\.b"):
        describe_record(Swapped)


def test_a_former_name_of_two_fields_is_refused() -> None:
    @dataclass
    class Twice:
        a: Annotated[int, FormerName("x")]
        b: Annotated[int, FormerName("x")]

    with pytest.raises(GraphError, match=r"Twice\.b has the former name 'x', which is that of Twice\.a"):
        describe_record(Twice)


@pytest.mark.parametrize("names", [(), ("",), (1,)])
def test_a_former_name_is_a_name(names: Any) -> None:
    with pytest.raises(GraphError, match="say what the field was called"):
        FormerName(*names)
