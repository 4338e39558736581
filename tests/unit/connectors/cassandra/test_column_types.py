"""Which Arrow types the types of Cassandra take, and values that would be changed."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.cassandra.column_types import doubles_when_repeated, takes, values_of

UUID = "6d5b2a3e-64c0-4b0e-9d6b-0c7b2f1b7a55"


@pytest.mark.parametrize(
    ("cql", "of", "fits"),
    [
        ("bigint", pa.int64(), True),
        ("int", pa.int64(), False),
        ("int", pa.uint16(), True),
        ("bigint", pa.uint64(), False),
        ("varint", pa.uint64(), True),
        ("double", pa.float32(), True),
        ("float", pa.float64(), False),
        ("double", pa.int64(), False),
        ("text", pa.large_string(), True),
        ("blob", pa.string(), False),
        ("timestamp", pa.timestamp("us", "UTC"), True),
        ("timestamp", pa.timestamp("us"), False),
        ("date", pa.date64(), True),
        ("time", pa.time32("ms"), True),
        ("decimal", pa.decimal128(9, 2), True),
        ("boolean", pa.int8(), False),
        ("uuid", pa.string(), True),
        ("duration", pa.duration("us"), False),
        ("frozen<list<text>>", pa.list_(pa.string()), True),
        ("frozen<list<int>>", pa.list_(pa.int64()), False),
        ("frozen<list<timestamp>>", pa.list_(pa.timestamp("us", "UTC")), False),
        ("set<text>", pa.list_(pa.string()), False),
        ("map<text, int>", pa.map_(pa.string(), pa.int32()), True),
        ("frozen<map<text, int>>", pa.map_(pa.string(), pa.string()), False),
        ("map<text, frozen<map<text, int>>>", pa.map_(pa.string(), pa.map_(pa.string(), pa.int32())), False),
        ("frozen<address>", pa.struct([("a", pa.int64())]), False),
    ],
)
def test_what_a_type_takes(cql: str, of: pa.DataType, fits: bool) -> None:
    assert takes(cql, of) is fits


def test_only_lists_that_are_not_frozen_are_doubled() -> None:
    found = [doubles_when_repeated(cql) for cql in ("list<text>", "frozen<list<text>>", "set<text>")]
    assert found == [True, False, False]


@pytest.mark.parametrize(
    ("cql", "column", "values", "bad"),
    [
        (
            "timestamp",
            pa.array([-1_001_000, None, -1], pa.timestamp("us", "UTC")),
            [-1001, None],
            {2: "more than the milli"},
        ),
        ("timestamp", pa.array([1], pa.timestamp("s", "UTC")), [1_000], {}),
        ("date", pa.array([-1, None], pa.date32()), [2**31 - 1, None], {}),
        ("time", pa.array([1], pa.time64("us")), [1_000], {}),
        (
            "uuid",
            pa.array([UUID, None, UUID.upper(), "x"]),
            [uuid.UUID(UUID), None],
            {2: UUID, 3: "'x' is no uuid"},
        ),
        ("timeuuid", pa.array([UUID]), [], {0: "no uuid of version 1"}),
        ("ascii", pa.array(["a", "ü"]), ["a"], {1: "'ü' is not ascii"}),
        (
            "map<text, int>",
            pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            [{"a": 1}, None],
            {},
        ),
    ],
)
def test_values_stay_what_they_are_or_are_bad(
    cql: str, column: pa.Array, values: list[Any], bad: dict[int, str]
) -> None:
    found, why = values_of(cql, column)
    assert len(found) == len(column)
    assert found[: len(values)] == values
    assert why.keys() == bad.keys()
    assert all(text in why[n] for n, text in bad.items())
