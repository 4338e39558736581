"""Columns of Nexmark's events: each value hangs on the seed, the column and the event's number alone. Pure.

The rules are those of the generator of Apache Beam and Flink: a half of all bids go to the hot auction, three
of four come from the hot bidder, three of four auctions are sold by the hot seller; the others are among the
latest. Random numbers are our own, so single values differ from theirs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.generator.random_columns import START_MS
from onceflow.connectors.nexmark.numbering import Kind, event_numbers, made_before
from onceflow.runtime.records import Int64s

_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1_000, 10, 5
_HOT_AUCTION, _HOT_SELLER, _HOT_BIDDER = 2, 4, 4
"""One of so many is not the hot one's."""
_HOT_EVERY = 100
_AUCTIONS_LATEST, _PERSONS_LATEST = 100, 1_000
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_WORDS = [
    "lamp",
    "table",
    "chair",
    "clock",
    "vase",
    "radio",
    "piano",
    "camera",
    "bicycle",
    "carpet",
    "mirror",
    "ring",
]
_EXTRA_WIDTH = 24
Make = Callable[["NexmarkColumns", Int64s], pa.Array]


@dataclass(frozen=True)
class NexmarkColumns:
    """Makes columns of one kind of events: a Maker of GeneratorSource. `per_s`: how many events of all kinds
    are in a second of event time."""

    kind: Kind
    schema: pa.Schema
    seed: int
    per_s: float

    def batch(self, numbers: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns of the events of this kind with these numbers."""
        events = event_numbers(self.kind, numbers)
        fields = [self.schema.field(name) for name in columns]
        arrays = [_COLUMNS[self.kind][field.name](self, events).cast(field.type) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def random(self, name: str, events: Int64s) -> npt.NDArray[np.uint64]:
        """64 random bits for each event (splitmix64), others for each seed, kind and name."""
        start = np.uint64(zlib.crc32(f"{self.seed} {self.kind} {name}".encode())) << np.uint64(32)
        mixed = (events.astype(np.uint64) + start + np.uint64(1)) * np.uint64(_ODD[0])
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_ODD[1])
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_ODD[2])
        return mixed ^ (mixed >> np.uint64(31))

    def below(self, name: str, events: Int64s, limit: int | Int64s) -> Int64s:
        """A number from 0 for each event, below the limit."""
        return (self.random(name, events) % np.asarray(limit, np.uint64)).astype(np.int64)

    def times_ms(self, events: Int64s) -> Int64s:
        """When each event happens."""
        return START_MS + (events * (1_000 / self.per_s)).astype(np.int64)


def _times(columns: NexmarkColumns, events: Int64s) -> pa.Array:
    return pa.array(columns.times_ms(events), pa.timestamp("ms", "UTC"))


def _expires(columns: NexmarkColumns, events: Int64s) -> pa.Array:
    """An auction is over when about as many others have begun as are under way at once, twice at most."""
    mean_ms = int(_AUCTIONS_LATEST * 50 / 3 * 1_000 / columns.per_s)
    after_ms = 1 + columns.below("expires", events, max(1, 2 * mean_ms))
    return pa.array(columns.times_ms(events) + after_ms, pa.timestamp("ms", "UTC"))


def _own_id(kind: Kind) -> Make:
    return lambda columns, events: pa.array(_FIRST_ID - 1 + made_before(kind, events))


def _reference(name: str, kind: Kind, hot: int, latest: int) -> Make:
    """The id of an earlier event: mostly the hot one's."""

    def make(columns: NexmarkColumns, events: Int64s) -> pa.Array:
        newest = made_before(kind, events) - 1
        is_hot = columns.below(f"{name} is hot", events, hot) > 0
        back = columns.below(name, events, np.minimum(newest, latest) + 1)
        return pa.array(_FIRST_ID + np.where(is_hot, newest // _HOT_EVERY * _HOT_EVERY, newest - back))

    return make


def _price(name: str) -> Make:
    """Cents, as many of each length."""

    def make(columns: NexmarkColumns, events: Int64s) -> pa.Array:
        part = (columns.random(name, events) >> np.uint64(11)).astype(np.float64) / (1 << 53)
        return pa.array(np.round(10.0 ** (part * 6) * 100).astype(np.int64))

    return make


def _reserve(columns: NexmarkColumns, events: Int64s) -> pa.Array:
    return pc.add(_price("initial_bid")(columns, events), _price("reserve")(columns, events))


def _one_of(name: str, values: Sequence[str]) -> Make:
    choices = pa.array(values)
    return lambda columns, events: choices.take(pa.array(columns.below(name, events, len(values))))


def _joined(separator: str, *parts: Make) -> Make:
    return lambda columns, events: pc.binary_join_element_wise(
        *(part(columns, events).cast(pa.string()) for part in parts), separator
    )


def _number(name: str, limit: int, first: int = 0) -> Make:
    return lambda columns, events: pa.array(first + columns.below(name, events, limit))


def _constant(text: str) -> Make:
    return lambda columns, events: pa.array([text] * len(events))


def _extra(columns: NexmarkColumns, events: Int64s) -> pa.Array:
    digits = pa.array(columns.random("extra", events)).cast(pa.string())
    return pc.utf8_lpad(digits, _EXTRA_WIDTH, "x")


_NAME = _joined(" ", _one_of("first", _FIRST_NAMES), _one_of("last", _LAST_NAMES))
_CARD = _joined(" ", *(_number(f"card {part}", 9_000, 1_000) for part in range(4)))
_COLUMNS: dict[Kind, dict[str, Make]] = {
    "person": {
        "id": _own_id("person"),
        "name": _NAME,
        "email_address": _joined("@", _joined("", _one_of("mail", _WORDS), _number("mail number", 10_000)),
                                 _joined(".", _one_of("host", _WORDS), _constant("example"))),
        "credit_card": _CARD,
        "city": _one_of("city", _CITIES),
        "state": _one_of("state", _STATES),
        "date_time": _times,
        "extra": _extra,
    },
    "auction": {
        "id": _own_id("auction"),
        "item_name": _joined(" ", _one_of("item", _WORDS), _number("item number", 1_000)),
        "description": _joined(" ", *(_one_of(f"word {n}", _WORDS) for n in range(5))),
        "initial_bid": _price("initial_bid"),
        "reserve": _reserve,
        "date_time": _times,
        "expires": _expires,
        "seller": _reference("seller", "person", _HOT_SELLER, _PERSONS_LATEST),
        "category": _number("category", _CATEGORIES, _FIRST_CATEGORY),
        "extra": _extra,
    },
    "bid": {
        "auction": _reference("auction", "auction", _HOT_AUCTION, _AUCTIONS_LATEST),
        "bidder": _reference("bidder", "person", _HOT_BIDDER, _PERSONS_LATEST),
        "price": _price("price"),
        "channel": _one_of("channel", _CHANNELS),
        "url": _joined("", _constant("https://www.nexmark.example/"), _one_of("shelf", _WORDS),
                       _constant("/item.htm?query=1&channel_id="), _number("channel id", 10_000)),
        "date_time": _times,
        "extra": _extra,
    },
}  # fmt: skip
