"""Record types to Arrow and back; each refusal with its sentence."""

import datetime as dt
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.columns_of_records import WrongFieldError, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import records_from_batch


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    price: float | None


@dataclass(frozen=True, slots=True)
class Order:
    user: str
    amount: int
    ratio: float
    ok: bool
    raw: bytes
    at: dt.datetime
    day: dt.date
    note: Optional[str]  # noqa: UP045 - both spellings are supported
    items: list[Item]
    counts: dict[str, int]
    tags: list[str | None]


class Point(NamedTuple):
    x: int
    y: int | None = None


orders = st.builds(
    Order,
    user=st.text(),
    amount=st.integers(-(2**63), 2**63 - 1),
    ratio=st.floats(allow_nan=False),
    ok=st.booleans(),
    raw=st.binary(),
    at=st.integers(0, 4_000_000_000_000).map(
        lambda ms: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
    ),
    day=st.dates(),
    note=st.none() | st.text(),
    items=st.lists(st.builds(Item, name=st.text(), price=st.none() | st.floats(allow_nan=False)), max_size=3),
    counts=st.dictionaries(st.text(), st.integers(-5, 5), max_size=3),
    tags=st.lists(st.none() | st.text(), max_size=3),
)


@given(st.lists(orders, max_size=5))
def test_records_survive_columns(records: list[Order]) -> None:
    batch = batch_from_records(records, arrow_schema(Order))
    batch.validate(full=True)
    assert records_from_batch(batch, Order) == records


def test_schema_of_a_dataclass() -> None:
    schema = arrow_schema(Order)
    assert schema.field("user") == pa.field("user", pa.string(), nullable=False)
    assert schema.field("at").type == pa.timestamp("ms", "UTC")
    assert schema.field("note") == pa.field("note", pa.string(), nullable=True)
    assert pa.types.is_map(schema.field("counts").type)
    assert schema.field("items").type.value_type.field("price").nullable


def test_schema_and_records_of_a_named_tuple() -> None:
    assert arrow_schema(Point) == pa.schema([pa.field("x", pa.int64(), False), pa.field("y", pa.int64())])
    points = [Point(1, 2), Point(3)]
    assert records_from_batch(batch_from_records(points, arrow_schema(Point)), Point) == points


def test_extra_columns_are_left_out() -> None:
    batch = pa.record_batch({"z": ["no"], "y": [2], "x": [1]})
    assert records_from_batch(batch, Point) == [Point(1, 2)]


@dataclass
class Odd:
    what: complex


@dataclass
class OddInside:
    whats: list[set[complex]]


@dataclass
class OddKeys:
    by_ratio: dict[float, str]


@pytest.mark.parametrize(
    ("record_type", "sentence"),
    [
        (Odd, "Odd.what is a complex, which has no Arrow type"),
        (OddInside, "OddInside.whats is a complex, which has no Arrow type"),
        (OddKeys, r"OddKeys.by_ratio is a dict\[float, str\], whose keys have no text of their own: use str"),
        (int, "int is not a record type: use a dataclass or a NamedTuple"),
    ],
)
def test_types_without_an_arrow_type_are_refused(record_type: type, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        arrow_schema(record_type)


@pytest.mark.parametrize(
    ("records", "row", "sentence"),
    [
        ([Point(1), Point("two")], 1, r"field 'x' is declared int but is 'two' \(str\)"),  # type: ignore[arg-type]
        ([Point(1), Point(None)], 1, "field 'x' is None, but is declared without None"),  # type: ignore[arg-type]
        ([Point(2**63)], 0, "field 'x' is declared int but is 9223372036854775808 .*does not fit 64 bits"),
        ([Point(1), {"x": 1}], 1, "a dict was returned; expected a record with the fields x, y"),
        ([Point(1.5)], 0, "field 'x' is declared int but is 1.5"),  # type: ignore[arg-type]
    ],
)
def test_wrong_values_name_record_and_field(records: list[Any], row: int, sentence: str) -> None:
    with pytest.raises(WrongFieldError, match=sentence) as caught:
        batch_from_records(records, arrow_schema(Point))
    assert caught.value.row == row


@dataclass
class Kinds:
    day: dt.date | None = None
    ratio: float | None = None
    ok: bool | None = None
    nested: list[int] | None = None


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (Kinds(day=dt.datetime(2026, 1, 1)), "field 'day' is declared date .*a datetime is no date"),
        (Kinds(ok=1), "field 'ok' is declared bool but is 1"),  # type: ignore[arg-type]
        (Kinds(nested=[1, 2.5]), "field 'nested' is declared .* a float is no int"),  # type: ignore[list-item]
        (Kinds(nested=[None]), "its item is None, but is declared without None"),  # type: ignore[list-item]
        (Kinds(ratio="1"), "field 'ratio' is declared float but is '1'"),  # type: ignore[arg-type]
    ],
)
def test_what_arrow_would_change_silently_is_refused(record: Kinds, sentence: str) -> None:
    with pytest.raises(WrongFieldError, match=sentence):
        batch_from_records([record], arrow_schema(Kinds))


def test_numpy_scalars_are_taken() -> None:
    batch = batch_from_records([Point(np.int64(4))], arrow_schema(Point))  # type: ignore[arg-type]
    assert records_from_batch(batch, Point) == [Point(4)]
