"""A user's program for test_by_value.py: record types of every kind, and what formats, operators and the
user's own functions make of them. Each case is made as a graph is built, and called where a slot would.

It is loaded as a file that is named on the command line: under a name that can't be imported elsewhere.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import enum
import pickle
import typing
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

from onceflow import (
    AggregateFunction,
    Ctx,
    Job,
    KeyedProcess,
    ListState,
    MapState,
    SideOutput,
    ValueState,
    WatermarkStrategy,
    tumbling,
)
from onceflow.connectors.formats import Avro, Decoder, Json
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import LONE_SUBTASK, OperatorHarness
from onceflow.runtime.types.columns_of_records import batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader

CASES: dict[str, tuple[Callable[[], Any], Any]] = {}
"""What is called in a slot, and what it must give, by name."""


class City(NamedTuple):
    name: str
    zip: str = "?"


@dataclass(frozen=True)
class Address:
    city: City
    lines: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    placed: dt.datetime
    tags: list[str] = field(default_factory=list)
    address: Address | None = None
    note: str = "none"


@dataclass(frozen=True, slots=True)
class Flat:
    user: str
    amount: int
    rate: float | None = None
    note: str = "none"


class FlatTuple(NamedTuple):
    user: str
    amount: int
    note: str = "none"


@dataclass
class Keyworded:
    first: int
    _: KW_ONLY
    second: str
    third: float = 0.5


@dataclass
class Seeded:
    first: int
    seed: InitVar[int] = 10
    second: int = 2
    kind: ClassVar[str] = "seeded"
    total: int = field(init=False, default=0)

    def __post_init__(self, seed: int) -> None:
        self.total = self.first + self.second + seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Strict:
    user: str
    at: dt.date


@dataclass(frozen=True)
class Special(Flat):
    extra: bool = True


class Plain(Flat):
    """A class that is not decorated itself."""


@dataclass
class Holder:
    inner: Keyworded
    all: list[Keyworded]
    named: dict[str, Special | None]


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


# --- Formats --------------------------------------------------------------------------------------

FULL = (
    b'{"user":"u","amount":1,"placed":"2026-01-02T03:04:05Z","tags":["a"],'
    b'"address":{"city":{"name":"X"},"lines":["l"]},"note":"n"}'
)
SPARSE = b'{"user":"u","amount":1,"placed":"2026-01-02T03:04:05Z"}'
LESS = b'{"user":"u","placed":"2026-01-02T03:04:05Z"}'
PLACED = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=ZoneInfo("UTC"))
FULL_ROW = {
    "user": "u",
    "amount": 1,
    "placed": PLACED,
    "tags": ["a"],
    "address": {"city": {"name": "X", "zip": "?"}, "lines": ["l"]},
    "note": "n",
}
SPARSE_ROW = {"user": "u", "amount": 1, "placed": PLACED, "tags": [], "address": None, "note": "none"}
NO_AMOUNT = "Object missing required field `amount`"


@dataclass(frozen=True)
class Decode:
    """Values decoded in a slot, as rows and bad rows."""

    decoder: Callable[[], Decoder]
    values: list[bytes | None]

    def __call__(self) -> Any:
        decoded = self.decoder().decode(self.values)
        return decoded.batch.to_pylist(), [(bad.row, bad.reason) for bad in decoded.bad]


CASES["json: every field"] = (Decode(Json(Purchase).decoder, [FULL]), ([FULL_ROW], []))
CASES["json: what has a default is missing"] = (Decode(Json(Purchase).decoder, [SPARSE]), ([SPARSE_ROW], []))
CASES["json: what is required is missing"] = (
    Decode(Json(Purchase).decoder, [LESS, SPARSE]),
    ([SPARSE_ROW], [(0, NO_AMOUNT)]),
)
MANY = [b'{"user":"u","amount":%d}' % n for n in range(3_000)]
for record_type in (Flat, FlatTuple, Special, Plain):
    rest: dict[str, Any] = {"rate": None} if record_type is not FlatTuple else {}
    rest |= {"note": "none"} | ({"extra": True} if record_type is Special else {})
    CASES[f"json: many flat values as {record_type.__name__}"] = (
        Decode(Json(record_type).decoder, [*MANY, b'{"user":"u"}']),
        ([{"user": "u", "amount": n} | rest for n in range(3_000)], [(3_000, NO_AMOUNT)]),
    )
CASES["json: keyword-only fields"] = (
    Decode(Json(Keyworded).decoder, [b'{"first":1,"second":"s"}']),
    ([{"first": 1, "second": "s", "third": 0.5}], []),
)
CASES["json: no InitVar, no ClassVar, no field that is not given"] = (
    Decode(Json(Seeded).decoder, [b'{"first":1}']),
    ([{"first": 1, "second": 2}], []),
)

WRITTEN = {
    "type": "record",
    "name": "Written",
    "fields": [{"name": "user", "type": "string"}, {"name": "amount", "type": "long"}],
}
LESS_WRITTEN = {"type": "record", "name": "Less", "fields": [{"name": "user", "type": "string"}]}
REGISTRY = {1: WRITTEN, 2: LESS_WRITTEN}


@dataclass(frozen=True)
class Sparse:
    """What a writer has that knows two of the fields."""

    user: str
    amount: int
    tags: list[str] = field(default_factory=list)
    address: Address | None = None
    note: str = "none"


FROM_REGISTRY = Avro(Sparse, registry=REGISTRY)
AVRO_ROW = {"user": "u", "amount": 1, "tags": [], "address": None, "note": "none"}
VALUE_1, VALUE_2 = b"\x00\x00\x00\x00\x01\x02u\x02", b"\x00\x00\x00\x00\x02\x02u"
CASES["avro: what has a default is missing"] = (
    Decode(FROM_REGISTRY.decoder, [VALUE_1]),
    ([AVRO_ROW], []),
)
CASES["avro: a writer without a required field"] = (
    lambda: ["amount" in bad.reason for bad in FROM_REGISTRY.decoder().decode([VALUE_2]).bad],
    [True],
)
CASES["avro: for a topic"] = (
    lambda: FROM_REGISTRY.for_topic("t", "value").schema.names,
    ["user", "amount", "tags", "address", "note"],
)
PLAIN_DATUM = Avro(Flat, framing="none")
CASES["avro: plain datums"] = (
    lambda: (
        PLAIN_DATUM.decoder()
        .decode(PLAIN_DATUM.encoder(arrow_schema_of_flat).encode(flat_batch))
        .batch.to_pylist()
    ),
    [{"user": "u", "amount": 1, "rate": None, "note": "none"}],
)
arrow_schema_of_flat = arrow_schema(Flat)
flat_batch = batch_from_records([Flat("u", 1)], arrow_schema_of_flat)

# --- Records --------------------------------------------------------------------------------------

DAY = dt.date(2026, 1, 1)
KEYWORDED = Keyworded(1, second="s")
RECORDS = [
    Flat("u", 1),
    FlatTuple("u", 1),
    Purchase("u", 1, PLACED, ["a"], Address(City("X"), ["l"])),
    KEYWORDED,
    Seeded(1, second=5),
    Strict(user="u", at=DAY),
    Special("u", 1, extra=False),
    Plain("u", 1),
    Holder(KEYWORDED, [KEYWORDED], {"a": Special("u", 1), "b": None}),
]


@dataclass(frozen=True)
class MakeRecords:
    """Records made of columns, and columns of them, in a slot."""

    reader: RecordReader
    batch: pa.RecordBatch
    record_type: type

    def __call__(self) -> Any:
        (record,) = self.reader.read(self.batch)
        assert isinstance(record, self.record_type)
        assert batch_from_records([record], self.batch.schema) == self.batch
        return repr(record)


for record in RECORDS:
    made = MakeRecords(
        RecordReader(type(record)), batch_from_records([record], arrow_schema(type(record))), type(record)
    )
    CASES[f"record: {type(record).__name__}"] = (made, repr(record))

# --- The user's own code --------------------------------------------------------------------------


def users_own(case: Callable[[], Any], expected: Any) -> None:
    CASES[f"own code: {case.__name__}"] = (case, expected)


def replaced() -> Any:
    changed = dataclasses.replace(KEYWORDED, third=2.0)
    return changed == Keyworded(1, second="s", third=2.0), dataclasses.replace(Flat("u", 1), amount=2).amount


def not_replaced() -> Any:
    try:
        dataclasses.replace(Given(1, 2), first=3)
    except ValueError as error:
        return str(error)
    return "an InitVar without a value was taken"


@dataclass
class Given:
    first: int
    seed: InitVar[int]

    def __post_init__(self, seed: int) -> None:
        self.first += seed


def as_dicts() -> Any:
    return dataclasses.asdict(Seeded(1)), dataclasses.astuple(Address(City("X"))), copy.deepcopy(KEYWORDED)


def required_fields() -> Any:
    fields = dataclasses.fields(Purchase)
    missing = dataclasses.MISSING
    return [f.name for f in fields if f.default is missing and f.default_factory is missing]


def made_in_the_slot() -> Any:
    @dataclass
    class Local(Keyworded):
        fourth: int = 4

    return repr(Local(1, 2, second="s"))


def pickled() -> Any:
    """Records as a program keeps them in a state of bytes."""
    return [pickle.loads(pickle.dumps(record)) == record for record in (KEYWORDED, Strict(user="u", at=DAY))]


def hinted() -> Any:
    return typing.get_type_hints(Purchase)["placed"] is dt.datetime


def colored() -> Any:
    return Color("red") is Color.RED, [c.name for c in Color], {Color.RED: 1}[Color.RED]


def matched() -> Any:
    match Special("u", 7):
        case Flat(user, amount):
            return user, amount


def named() -> Any:
    return City("X")._replace(zip="1"), City("X") == ("X", "?"), isinstance(Special("u", 1), Flat)


LOCAL = "made_in_the_slot.<locals>.Local(first=1, second='s', third=0.5, fourth=2)"
users_own(replaced, (True, 2))
users_own(not_replaced, "InitVar 'seed' must be specified with replace()")
users_own(
    as_dicts,
    ({"first": 1, "second": 2, "total": 13}, (City("X"), []), KEYWORDED),
)
users_own(required_fields, ["user", "amount", "placed"])
users_own(made_in_the_slot, LOCAL)
users_own(pickled, [True, True])
users_own(hinted, True)
users_own(colored, (True, ["RED", "GREEN"], 1))
users_own(matched, ("u", 7))
users_own(named, (City("X", "1"), True, True))

# --- Operators ------------------------------------------------------------------------------------


class Source:
    schema = arrow_schema(Purchase)
    record_type = Purchase
    is_bounded = True


class Sink:
    def check(self, schema: pa.Schema, uid: str) -> None:
        pass


class Longest(NamedTuple):
    user: str
    tags: list[str]


class FindLongest(AggregateFunction[Purchase, Longest, str]):
    def create_accumulator(self) -> Longest:
        return Longest("", [])

    def add(self, value: Purchase, accumulator: Longest) -> Longest:
        return max(accumulator, Longest(value.user, value.tags), key=lambda each: len(each.tags))

    def merge(self, accumulator_a: Longest, accumulator_b: Longest) -> Longest:
        return accumulator_a

    def get_result(self, accumulator: Longest) -> str:
        return accumulator.user


class Remember(KeyedProcess[str, Purchase, Purchase]):
    last = ValueState("last", Purchase)
    all = ListState("all", Address)
    by_tag = MapState("by_tag", str, Keyworded)
    side = SideOutput("side", Flat)

    def process(self, record: Purchase, ctx: Ctx) -> Iterator[Purchase]:
        last = self.last.get()
        if record.address is not None:
            self.all.add(record.address)
        for tag in record.tags:
            self.by_tag.put(tag, Keyworded(record.amount, second=tag))
        ctx.emit(self.side, Flat(record.user, record.amount))
        self.last.set(dataclasses.replace(record, amount=record.amount + (last.amount if last else 0)))
        assert isinstance(self.last.get(), Purchase)
        assert all(isinstance(each, Keyworded) for each in self.by_tag.values())
        yield self.last.get()


def shout(purchase: Purchase) -> Purchase:
    return dataclasses.replace(purchase, user=purchase.user.upper())


def tagged(purchase: Purchase) -> Iterator[Flat]:
    for tag in purchase.tags:
        yield Flat(purchase.user, purchase.amount, note=tag)


def user_of(purchase: Purchase) -> str:
    return purchase.user


def larger(a: Purchase, b: Purchase) -> Purchase:
    return a if a.amount >= b.amount else b


job = Job("by-value")
purchases = job.source(Source(), WatermarkStrategy.monotonous(), uid="purchases")
purchases.map(shout, uid="map").sink_to(Sink(), uid="out-1")
purchases.flat_map(tagged, uid="flat-map").sink_to(Sink(), uid="out-2")
purchases.filter(lambda p: p.address is not None, uid="filter").sink_to(Sink(), uid="out-3")
purchases.key_by(user_of).reduce(larger, uid="rolling").sink_to(Sink(), uid="out-4")
windows = purchases.key_by("user").window(tumbling("1 s"))
windows.aggregate(uid="longest", longest=FindLongest()).sink_to(Sink(), uid="out-5")
windows.reduce(larger, uid="largest").sink_to(Sink(), uid="out-6")
process = purchases.key_by("user").process(Remember(), uid="process")
process.sink_to(Sink(), uid="out-7")
process.side_output("side").sink_to(Sink(), uid="out-8")
NODES = {uid: node for chain in job.build().chains for uid, node in chain.nodes.items()}

INPUT = batch_from_records(
    [
        Purchase("u", 1, PLACED, ["a", "b"], Address(City("X"))),
        Purchase("u", 2, PLACED, ["a"]),
    ],
    Source.schema,
)


@dataclass(frozen=True)
class Stateless:
    """A stateless operator in a slot: the users and amounts that come out."""

    create: Callable[[], Any]

    def __call__(self) -> Any:
        out = Out()
        operator = self.create()
        operator.open(LONE_SUBTASK, out)
        operator.on_records(Records(INPUT))
        return [(row["user"], row["amount"], row["note"]) for row in out.rows]


class Out:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def emit(self, records: Records, tag: str = "") -> None:
        self.rows += records.batch.to_pylist()


@dataclass(frozen=True)
class Keyed:
    """A keyed operator in a slot, restored at another parallelism between two batches."""

    create: Callable[[], Any]
    columns: list[str]

    def __call__(self) -> Any:
        first = OperatorHarness(self.create, ["user"])
        first.push(INPUT, [1, 2])
        again = OperatorHarness(self.create, ["user"], parallelism=2, states=first.snapshot())
        again.push(INPUT, [1, 2])
        again.finish()
        return [[row[name] for name in self.columns] for row in again.rows()]


CASES["operator: map"] = (Stateless(NODES["map"].create), [("U", 1, "none"), ("U", 2, "none")])
CASES["operator: flat_map"] = (
    Stateless(NODES["flat-map"].create),
    [("u", 1, "a"), ("u", 1, "b"), ("u", 2, "a")],
)
CASES["operator: filter"] = (Stateless(NODES["filter"].create), [("u", 1, "none")])
CASES["operator: aggregate"] = (Keyed(NODES["longest"].create, ["user", "longest"]), [["u", "u"]])
CASES["operator: window reduce"] = (Keyed(NODES["largest"].create, ["user", "amount"]), [["u", 2]])
CASES["operator: process"] = (
    Keyed(NODES["process"].create, ["user", "amount"]),
    [["u", 4], ["u", 6]],
)
