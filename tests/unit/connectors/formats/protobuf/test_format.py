"""Protobuf: the user's types, what is bad, what is refused, and what the header says."""

from __future__ import annotations

import datetime as dt
import enum
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from onceflow import Scale
from onceflow.connectors.formats import EncodeError, Protobuf, for_topic
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader
from tests.protobuf_messages import descriptor_set, message_class

PROTO = """
syntax = "proto3";
package shop;
import "geo/place.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
message Refund { int64 id = 1; }
message Line { string item_id = 1; uint32 count = 2; string price = 3; }
enum Color { RED = 0; BLUE = 1; }
message Order {
  string userId = 1; repeated Line lines = 2; google.protobuf.Timestamp at = 3;
  google.protobuf.Duration took = 4; Color color = 5; Color level = 6; repeated Color colors = 7;
  map<string, Line> by_day = 8; optional string note = 9; string kind = 10; geo.Place place = 11;
}
message Tree { Tree left = 1; int32 x = 2; google.protobuf.Value any = 3; }
message Answer { oneof of { string text = 1; int32 number = 2; } optional int32 left = 3; int32 right = 4; }
message Big { uint64 id = 1; }
"""
PLACE = 'syntax = "proto3"; package geo; message Place { double x = 1; }'
PROTO2 = """
syntax = "proto2";
package old;
message Row { required int32 id = 1; optional int32 size = 2 [default = 7]; optional string text = 3; }
"""
FILES = (("shop.proto", PROTO), ("geo/place.proto", PLACE))


def of(name: str) -> Any:
    return message_class(name, *FILES)


ORDER, REFUND, ANSWER, BIG = (of(f"shop.{name}") for name in ("Order", "Refund", "Answer", "Big"))
ROW2 = message_class("old.Row", ("old.proto", PROTO2))


class Color(enum.Enum):
    RED = "RED"
    BLUE = "BLUE"


class Level(enum.Enum):
    LOW = 0
    HIGH = 1


@dataclass(frozen=True)
class Line:
    item: UUID = field(metadata={"alias": "item_id"})
    count: int
    price: Annotated[Decimal, Scale(2)]


@dataclass(frozen=True)
class Place:
    x: float


@dataclass(frozen=True)
class Order:
    user: str = field(metadata={"alias": "userId"})
    lines: list[Line]
    at: dt.datetime
    took: dt.timedelta
    color: Color
    level: Level
    colors: frozenset[Color]
    by_day: dict[dt.date, Line]
    note: str | None
    kind: Literal["a", "b"]
    place: Place | None


NOON = dt.datetime(2026, 7, 1, 12, tzinfo=dt.UTC)
LINE = Line(UUID(int=7), 3, Decimal("1.50"))
ORDERS = [
    Order(
        "ann", [LINE, LINE], NOON, dt.timedelta(microseconds=-1), Color.BLUE, Level.HIGH,
        frozenset({Color.RED, Color.BLUE}), {NOON.date(): LINE}, "", "a", Place(0.5),
    ),
    Order("", [], NOON, dt.timedelta(0), Color.RED, Level.LOW, frozenset(), {}, None, "b", None),
]  # fmt: skip


def decoded(format: Protobuf, *values: bytes | None) -> Any:
    return format.decoder().decode(values)


# --- The user's types -----------------------------------------------------------------------------


def test_records_of_the_users_types_come_back() -> None:
    form = Protobuf(ORDER, of=Order, framing="none")
    batch = RecordWriter.of(describe_record(Order)).write(ORDERS)
    values = form.encoder(batch.schema).encode(batch)
    found = form.decoder().decode(values)
    assert not found.bad
    assert found.batch == batch
    assert RecordReader(Order).read(found.batch) == ORDERS
    message = ORDER.FromString(values[0].as_py())
    assert (message.userId, message.lines[0].price, message.took.nanos) == ("ann", "1.50", -1000)
    assert (message.color, message.level, list(message.by_day)) == (1, 1, ["2026-07-01"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "c"}, "kind"),
        ({"lines": [{"item_id": "x", "price": "1"}]}, "lines"),
        ({"lines": [{"item_id": str(UUID(int=1)), "price": "1.005"}]}, "1.005 does not fit"),
        ({"lines": [{"item_id": str(UUID(int=1)), "price": "?"}]}, "no number"),
        ({"by_day": {"july": {"item_id": str(UUID(int=1)), "price": "1"}}}, "'july' is no date"),
        ({"color": 9}, "9, which is not a value of the enum shop.Color"),
        ({"at": None}, "the field 'at' is not there"),
    ],
)
def test_a_value_that_is_none_of_the_users_type_is_bad(change: dict[str, Any], said: str) -> None:
    good = {"kind": "a", "at": {"seconds": 5}, "took": {}}
    form = Protobuf(ORDER, of=Order, framing="none")
    messages = [ORDER(**good), ORDER(**{**good, **change})]
    found = decoded(form, *(message.SerializeToString() for message in messages))
    assert [bad.row for bad in found.bad] == [1]
    assert said in found.bad[0].reason
    assert found.batch.num_rows == 1


def test_some_fields_and_wider_numbers_by_an_arrow_schema() -> None:
    place = pa.struct([pa.field("x", pa.float64(), False)])
    schema = pa.schema([pa.field("level", pa.int64(), False), pa.field("place", place)])
    found = decoded(Protobuf(ORDER, of=schema, framing="none"), ORDER(level=1).SerializeToString())
    assert found.batch.to_pylist() == [{"level": 1, "place": None}]


# --- What is there, and what is not ---------------------------------------------------------------


def test_proto2_has_required_fields_and_defaults() -> None:
    form = Protobuf(ROW2, framing="none")
    assert form.schema.to_string() == "id: int32 not null\nsize: int32 not null\ntext: string"
    found = decoded(form, ROW2(id=1).SerializeToString(), b"")
    assert found.batch.to_pylist() == [{"id": 1, "size": 7, "text": None}]
    assert found.bad[0].reason == "required fields are not there: id"
    with pytest.raises(GraphError, match="requires the field id"):
        form.encoder(pa.schema([("text", pa.string())]))


def test_a_tombstone_is_what_was_said() -> None:
    value = ANSWER(text="a", right=1).SerializeToString()
    assert decoded(Protobuf(ANSWER, framing="none"), None, value).bad[0].row == 0
    assert decoded(Protobuf(ANSWER, framing="none", on_null="skip"), None, value).rows.tolist() == [1]
    some = pa.schema([("text", pa.string())])
    nulls = Protobuf(ANSWER, of=some, framing="none", on_null="nulls")
    assert decoded(nulls, value, None).batch.to_pylist() == [{"text": "a"}, {"text": None}]


def test_a_number_above_64_bits_with_a_sign_is_bad_for_an_int() -> None:
    form = Protobuf(BIG, of=pa.schema([pa.field("id", pa.int64(), False)]), framing="none")
    found = decoded(form, BIG(id=(1 << 64) - 1).SerializeToString(), BIG(id=5).SerializeToString())
    assert found.batch.to_pylist() == [{"id": 5}]
    assert "does not fit int64" in found.bad[0].reason


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"right": 1}, {"right": None}], "'right', row 1 of a batch: is null, which would be read as 0"),
        ([{"text": "a", "number": 1}], "text and number are of one oneof, and more than one is there"),
        ([{"left": 1 << 40}], "'left', row 0"),
    ],
)
def test_what_would_be_read_as_something_else_is_not_written(rows: list[dict[str, Any]], said: str) -> None:
    batch = pa.RecordBatch.from_pylist(rows)
    with pytest.raises(EncodeError) as caught:
        Protobuf(ANSWER, framing="none").encoder(batch.schema).encode(batch)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"lines": [{"count": 1}, None]}], "holds a null"),
        ([{"lines": []}, {"lines": [{"count": 1}, {"count": -1}]}], "'lines', row 1"),
        (
            [{"colors": ["RED"]}, {"colors": None}],
            "'colors', row 1 of a batch: is null, which would be read as an",
        ),
        ([{"color": "RED"}, {"color": "GREEN"}], "row 1 of a batch: 'GREEN' is not a value of the enum"),
        ([{"colors": ["RED"]}, {"colors": ["BLUE", "GREEN"]}], "'colors', row 1"),
    ],
)
def test_a_row_that_does_not_fit_is_named(rows: list[dict[str, Any]], said: str) -> None:
    batch = pa.RecordBatch.from_pylist(rows)
    with pytest.raises(EncodeError) as caught:
        Protobuf(ORDER, framing="none").encoder(batch.schema).encode(batch)
    assert said in str(caught.value)


# --- What is refused when the graph is built ------------------------------------------------------

REGISTRY = {7: PROTO}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Protobuf(ORDER), 'Protobuf needs registry="http://..."'),
        (lambda: Protobuf(dict, framing="none"), "give a class that protoc has written"),
        (lambda: Protobuf(ORDER, name="x", framing="none"), "has a name of its own"),
        (lambda: Protobuf(of("shop.Tree"), framing="none"), "'left' is a shop.Tree, which contains itself"),
        (lambda: Protobuf(ORDER, of=int, framing="none"), "give a dataclass"),  # type: ignore[arg-type]
        (lambda: Protobuf(ORDER, of=pa.schema([("uzerId", pa.string())]), framing="none"), "userId"),
        (
            lambda: Protobuf(ORDER, of=pa.schema([("at", pa.int64())]), framing="none"),
            "timestamp[us, tz=UTC]",
        ),
        (lambda: Protobuf(ORDER, registry=REGISTRY, subject_strategy="x"), "subject_strategy='x'"),  # type: ignore[arg-type]
        (lambda: Protobuf(ORDER, framing="none", on_null="nulls"), "'userId' is not"),
        (lambda: Protobuf(ORDER, registry={7: "no"}), "this is no Protobuf schema"),
        (lambda: Protobuf("/nowhere", name="a", framing="none"), "can't be read"),
        (
            lambda: Protobuf(ORDER, framing="none").encoder(pa.schema([("at", pa.int64())])),
            "column 'at' is int64, which can't be written as the Protobuf field shop.Order.at",
        ),
        (
            lambda: Protobuf(ORDER, framing="none").encoder(pa.schema([("usrId", pa.string())])),
            "has no field usrId (did you mean 'userId'?)",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(make: Callable[[], Any], said: str) -> None:
    with pytest.raises((OptionError, GraphError)) as caught:
        make()
    assert said in str(caught.value)


def test_a_descriptor_set_is_as_good_as_a_class(tmp_path: Path) -> None:
    path = tmp_path / "shop.binpb"
    path.write_bytes(descriptor_set(*FILES))
    form = Protobuf(path, name="shop.Order", framing="none")
    assert form.schema == Protobuf(ORDER, framing="none").schema
    with pytest.raises(OptionError, match=r"no message 'shop\.Ordre' in it \(did you mean 'shop\.Order'"):
        Protobuf(path, name="shop.Ordre", framing="none")
    with pytest.raises(OptionError, match="say which message it is"):
        Protobuf(path, framing="none")


def test_a_slot_needs_no_module_of_the_users() -> None:
    form = Protobuf(ORDER, of=Order, framing="none")
    program = (
        "import sys, pickle; form = pickle.loads(sys.stdin.buffer.read())\n"
        "print(form.decoder().decode([b'\\x52\\x01a\\x1a\\x00\\x22\\x00']).batch.to_pylist()[0]['kind'])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], input=cloudpickle.dumps(form), capture_output=True, timeout=240,
        check=True,
    )  # fmt: skip
    assert run.stdout == b"a\n"


def test_a_package_that_is_not_installed_is_named() -> None:
    program = (
        "import sys; sys.modules['google.protobuf.message_factory'] = None\n"
        "from onceflow.connectors.formats import Protobuf\n"
        "try: Protobuf(int, framing='none')\n"
        "except Exception as error: print(error)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True
    )
    assert "pip install 'onceflow[protobuf]'" in run.stdout


# --- The header -----------------------------------------------------------------------------------

REFUND_BYTES = REFUND(id=5).SerializeToString()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"\0\0\0\0\x07\0" + REFUND_BYTES, None),
        (b"\0\0\0\0\x07\x02\0" + REFUND_BYTES, None),  # the same, in long
        (b"\0\0\0\0\x07\x02\x02" + REFUND_BYTES, "it is a shop.Line (schema 7), not a shop.Refund"),
        (b"\0\0\0\0\x07\x02\x14" + REFUND_BYTES, "schema 7 has no message at [10]"),
        (b"\0\0\0\0\x08\0" + REFUND_BYTES, "there is no schema 8"),
        (b"\0\0\0\0\x07\x01" + REFUND_BYTES, "does not say which message"),
        (b"\0\0\0\0\x07\x04\0", "does not say which message"),
        (b"\0\0\0\0\x07", "does not say which message"),
        (b"\0\0\0\0\x07\xff\xff\xff\xff\xff\xff", "does not say which message"),
        (b"\x08\0\0\0\x07\0", "the first byte is 0x08"),
        (b"", "0 bytes are less than its header's 5"),
        (b"\0\0\0\0\x07\0\x08", "it is no shop.Refund"),
    ],
)
def test_a_value_is_of_the_message_that_is_read_or_bad(value: bytes, said: str | None) -> None:
    """It is so also in a batch whose other values have the ordinary header."""
    good = b"\0\0\0\0\x07\0" + REFUND_BYTES
    found = decoded(Protobuf(REFUND, registry=REGISTRY), good, value, good)
    if said is None:
        assert found.batch.to_pylist() == [{"id": 5}] * 3
    else:
        assert [bad.row for bad in found.bad] == [1]
        assert said in found.bad[0].reason
        assert found.batch.num_rows == 2


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic", "orders-value"), ("record", "shop.Order"), ("topic_record", "orders-shop.Order")],
)
def test_the_subject_is_named_by_the_strategy(strategy: Any, subject: str) -> None:
    form = for_topic(Protobuf(ORDER, registry=REGISTRY, subject_strategy=strategy), "orders", "value")
    assert isinstance(form, Protobuf)
    assert form.subject == subject
