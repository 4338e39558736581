"""What is not a value of a type is refused, value by value, and never changed; what is one comes back."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired, TypedDict
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.types.decoding import admitter, decoder
from onceflow.runtime.types.encoding import WrongValueError, encoder
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.value_types import Scale


class Color(enum.Enum):
    RED = "red"


class Other(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    A = "a"


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass(frozen=True)
class Placed:
    kind: Literal["placed"]
    amount: int


@dataclass(frozen=True)
class Cancelled:
    kind: Literal["cancelled"]


CENTS = Annotated[Decimal, Scale(2, precision=5)]
WRONG: list[tuple[Any, Any, str]] = [
    (dt.time, dt.time(1, tzinfo=dt.UTC), "a time with a zone has no column"),
    (dt.time, "01:00", "a str is not a time"),
    (dt.timedelta, 1, "a int is no timedelta"),
    (CENTS, Decimal("1.505"), "1.505 does not fit 3 digits before and 2 behind the point: round it, or say"),
    (CENTS, Decimal("1000"), "1000 does not fit 3 digits before and 2 behind the point"),
    (CENTS, Decimal("NaN"), "there is no column for NaN"),
    (CENTS, 1.5, "a float is no Decimal"),
    (CENTS, True, "a bool is no Decimal"),
    (Decimal, Decimal(1) / 3, "does not fit 20 digits before and 18 behind"),
    (Color, "red", "a str is no Color"),
    (Color, Other.RED, "a Other is no Color"),
    (Literal["a", "b"], "c", "it is none of 'a', 'b'"),
    (Literal["a", "b"], Word.A, "it is none of 'a', 'b'"),
    (Literal[1, 2], True, "it is none of 1, 2"),
    (UUID, "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "a str is no UUID"),
    (Any, float("nan"), "JSON has no nan"),
    (Any, [(1, 2)], "a tuple inside of Any"),
    (Any, {1: 2}, "the keys of JSON are text, and not 1"),
    (Any, {"at": dt.date(2026, 1, 1)}, "a date inside of Any"),
    (list[Color], "red", "a str is no list"),
    (list[Color], [None], "its item is None, but is declared without None"),
    (tuple[int, ...], [1], "a list is no tuple"),
    (set[int], [1], "a list is no set"),
    (set[int], {1.5}, "a float is no int"),
    (tuple[int, str], (1,), "it has 1 places, and 2 are declared"),
    (tuple[int, str], (1, None), "its f1 is None"),
    (dict[int, str], {1: None}, "its value is None"),
    (dict[int, str], {"1": "a"}, "a str is no int"),
    (dict[int, str], [(1, "a")], "a list is no dict"),
    (Movie, {"year": 1}, "a dict without 'title'"),
    (Movie, {"title": "t", "yaer": 1}, "Movie has no 'yaer'"),
    (Movie, object(), "a object is no Movie"),
    (Placed | Cancelled, object(), "a object is none of its types, placed, cancelled"),
    (Placed | Cancelled, Placed("lost", 1), "a Placed is none of its types"),  # type: ignore[arg-type]
    (Placed | Cancelled, Placed("placed", "x"), "a str is no int"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("python", "value", "sentence"), WRONG)
def test_what_is_no_value_of_a_type_is_refused(python: Any, value: Any, sentence: str) -> None:
    with pytest.raises((WrongValueError, TypeError), match=sentence.replace("(", r"\(")):
        encoder(describe_type(python, "x"))(value)


decimals = st.decimals(
    allow_nan=False, allow_infinity=False, places=18, min_value=-(10**19), max_value=10**19
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    Decimal: decimals,
    dt.timedelta: st.timedeltas(dt.timedelta(days=-100_000_000), dt.timedelta(days=100_000_000)),
    dt.time: st.times(),
    UUID: st.uuids(),
    set[Decimal]: st.sets(decimals, max_size=4),
    frozenset[tuple[int, str | None]]: st.frozensets(
        st.tuples(st.integers(-9, 9), st.none() | st.text(max_size=2)), max_size=5
    ),
    set[frozenset[float]]: st.sets(st.frozensets(st.floats(allow_nan=False), max_size=3), max_size=3),
    Mapping[dt.date, Sequence[UUID]]: st.dictionaries(st.dates(), st.lists(st.uuids(), max_size=2)),
    Any: st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("python", VALUES, ids=str)
@given(data=st.data())
def test_values_come_back_as_they_were(python: Any, data: st.DataObject) -> None:
    of = describe_type(python, "x")
    value = data.draw(VALUES[python].filter(lambda each: each is not None))
    array = pa.array([encoder(of)(value)], of.arrow)
    array.validate(full=True)
    plain = array[0].as_py()
    decode, admit = decoder(of), admitter(of)
    found = plain if decode is None else decode(plain)
    assert found == value
    assert type(found) is type(value)
    assert plain == (plain if admit is None else admit(plain)), "what it writes it admits, as it is"


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.text(max_size=1)), max_size=6))
def test_the_column_of_a_set_hangs_on_its_values_alone(items: list[tuple[int, str | None]]) -> None:
    of = describe_type(frozenset[tuple[int, str | None]], "x")
    encode, admit = encoder(of), admitter(of)
    assert admit is not None
    plain = [{"f0": number, "f1": text} for number, text in items]
    assert encode(frozenset(items)) == encode(frozenset(reversed(items))) == admit(plain)
