"""A wrong field of any type names record and field; so does a record that is none."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NotRequired, TypedDict

import pytest

from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError
from onceflow.runtime.types.record_types import describe_record


class Color(enum.Enum):
    RED = "red"


@dataclass(frozen=True)
class Item:
    color: Color
    price: Decimal | None = None
    tags: frozenset[str] = frozenset()


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


GOOD = Item(Color.RED)


@pytest.mark.parametrize(
    ("record_type", "records", "row", "sentence"),
    [
        (Item, [GOOD, Item("red")], 1, r"field 'color' is declared Color but is 'red' \(str\): a str is no"),  # type: ignore[arg-type]
        (Item, [Item(None), GOOD], 0, "field 'color' is None, but is declared without None"),  # type: ignore[arg-type]
        (Item, [GOOD, Item(Color.RED, Decimal("1e-19"))], 1, "'price' is declared Decimal but .* round it"),
        (Item, [Item(Color.RED, tags={1})], 0, r"field 'tags' is declared frozenset\[str\] but"),  # type: ignore[arg-type]
        (Item, [{"color": Color.RED}], 0, "a dict was returned; expected a record with the fields color"),
        (Movie, [{"title": "a"}, {"title": 1}], 1, "field 'title' is declared str but is 1"),
        (Movie, [{"title": "a"}, {"year": 1}], 1, "a dict without 'title' was returned; expected"),
        (Movie, [{"title": "a", "yaer": 1}], 0, "a dict with 'yaer' was returned; expected"),
        (Movie, [GOOD], 0, "a Item was returned; expected a record with the fields title, year"),
    ],
)  # fmt: skip
def test_a_wrong_field_names_record_and_field(
    record_type: Any, records: list[Any], row: int, sentence: str
) -> None:
    with pytest.raises(WrongFieldError, match=sentence) as caught:
        RecordWriter.of(describe_record(record_type)).write(records)
    assert caught.value.row == row
