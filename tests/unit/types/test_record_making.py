"""Records made column by column are what the type itself makes of each row."""

from __future__ import annotations

import gc
import pickle
import sys
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, NamedTuple

import pytest
from pyspark import cloudpickle

from onceflow.runtime.types.record_making import RecordMaker, _is_plain_frozen_dataclass

COLUMNS = [["a", "b", "c"], [1, None, 3]]


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    count: int | None = None


@dataclass(frozen=True)
class Frozen:
    name: str
    count: int | None
    kind: ClassVar[str] = "k"


@dataclass(frozen=True)
class Below(Slotted):
    """A slot of the class above, and a dict of its own."""


@dataclass
class Plain:
    name: str
    count: int | None


class Tuple(NamedTuple):
    name: str
    count: int | None = 5


Loose = namedtuple("Loose", ["name", "count"])


@dataclass(frozen=True)
class Checked:
    name: str
    count: int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.upper())


@dataclass(frozen=True)
class OwnInit:
    name: str
    count: int | None

    def __init__(self, name: str, count: int | None) -> None:
        object.__setattr__(self, "name", name.upper())
        object.__setattr__(self, "count", count)


class BelowWithInit(Frozen):
    def __init__(self, name: str, count: int | None) -> None:
        super().__init__(name.upper(), count)


@dataclass(frozen=True)
class Derived:
    name: str
    count: int | None
    length: int = field(init=False, default=7)


@dataclass(frozen=True)
class WithInitVar:
    name: str
    count: InitVar[int | None]


class Counted:
    made = 0

    def __new__(cls, *args: Any) -> Counted:
        Counted.made += 1
        return super().__new__(cls)


@dataclass(frozen=True)
class OwnNew(Counted):
    name: str
    count: int | None


class UpperTuple(Tuple):
    def __new__(cls, name: str, count: int | None) -> UpperTuple:
        return super().__new__(cls, name.upper(), count)


class InitTuple(Tuple):
    def __init__(self, *fields: Any) -> None:
        self.seen = fields


PLAIN = [Slotted, Frozen, Below, Plain, Tuple, Loose]
OWN = [Checked, OwnInit, BelowWithInit, Derived, WithInitVar, OwnNew, UpperTuple, InitTuple]


def contents(record: Any) -> Any:
    slots = {name: getattr(record, name) for name in ("name", "count", "length") if hasattr(record, name)}
    return type(record), slots, getattr(record, "__dict__", None)


@pytest.mark.parametrize("record_type", PLAIN + OWN)
def test_records_are_those_of_the_type_itself(record_type: type) -> None:
    made = RecordMaker(record_type, ("name", "count"))(COLUMNS)
    expected = list(map(record_type, *COLUMNS))
    assert list(map(contents, made)) == list(map(contents, expected))
    assert made == expected


def python_calls(record_type: type, rows: int) -> int:
    """How many functions written in Python are called to make so many records."""
    make = RecordMaker(record_type, ("name", "count"))
    columns: list[list[Any]] = [["a"] * rows, [1] * rows]
    calls: list[str] = []
    before = sys.getprofile()
    gc.disable()  # what it runs at its end, hypothesis' callbacks for one, is no call of the maker's
    sys.setprofile(lambda frame, event, argument: calls.append(event) if event == "call" else None)
    try:
        make(columns)
    finally:
        sys.setprofile(before)
        gc.enable()
    return len(calls)


@pytest.mark.parametrize("record_type", [Slotted, Frozen, Below, Tuple, Loose])
def test_type_that_only_keeps_its_fields_costs_no_call_for_a_row(record_type: type) -> None:
    assert python_calls(record_type, 100) == python_calls(record_type, 1)


@pytest.mark.parametrize("record_type", OWN)
def test_type_that_does_more_is_called_for_each_row(record_type: type) -> None:
    assert python_calls(record_type, 100) >= python_calls(record_type, 1) + 99


@pytest.mark.parametrize("record_type", [Slotted, Frozen, Plain, Tuple, Checked])
def test_maker_travels_with_the_graph(record_type: type) -> None:
    there = pickle.loads(cloudpickle.dumps(RecordMaker(record_type, ("name", "count"))))
    assert there(COLUMNS) == list(map(record_type, *COLUMNS))


def test_class_that_travels_by_value_is_still_made_by_field() -> None:
    """The classes of a user's file travel so."""

    def here() -> type:
        @dataclass(frozen=True, slots=True)
        class Local:
            name: str
            count: int | None

        return Local

    there = pickle.loads(cloudpickle.dumps(RecordMaker(here(), ("name", "count"))))
    assert [(record.name, record.count) for record in there(COLUMNS)] == list(zip(*COLUMNS, strict=True))
    assert _is_plain_frozen_dataclass(type(there(COLUMNS)[0]), ("name", "count"))
