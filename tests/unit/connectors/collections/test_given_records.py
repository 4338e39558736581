"""What a program gives as records: the columns that come of it, and a sentence for what is none."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from onceflow.connectors.collections.function_source import FunctionSource
from onceflow.connectors.collections.given_records import elements_source, records_source
from onceflow.connectors.collections.table_source import TableSource
from onceflow.runtime.errors import GraphError


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    note: str | None = None


class Word(NamedTuple):
    word: str


DICTS = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("tags", pa.list_(pa.string()))])


def purchases() -> Iterator[Purchase]:
    yield Purchase("ann", 1)


def any_numbers():  # type: ignore[no-untyped-def]
    yield 1


def needs_one(n: int) -> Iterator[int]:
    yield n


def table_of(source: Any) -> pa.Table:
    assert isinstance(source, TableSource)
    return source.table


def test_records_of_a_type_have_its_columns() -> None:
    source = elements_source([Purchase("ann", 1), Purchase("bob", 2, "late")], None)
    assert source.record_type is Purchase
    assert table_of(source).to_pylist() == [
        {"user": "ann", "amount": 1, "note": None},
        {"user": "bob", "amount": 2, "note": "late"},
    ]
    assert [field.nullable for field in source.schema] == [False, False, True]
    assert elements_source([Word("a")], None).record_type is Word


def test_dicts_may_be_records_of_a_type_whose_defaults_count() -> None:
    source = records_source([{"user": "ann", "amount": 1}], Purchase)
    assert table_of(source).to_pylist() == [{"user": "ann", "amount": 1, "note": None}]


def test_dicts_without_a_type_are_inferred_from_all_of_them() -> None:
    source = records_source([{"n": 1}, {"n": 2, "x": 0.5}, {"n": 3, "x": None}], None)
    expected = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("x", pa.float64())])
    assert source.schema == expected
    assert table_of(source).column("x").to_pylist() == [None, 0.5, None]


def test_dicts_with_a_schema_have_its_columns() -> None:
    source = records_source([{"n": 1, "tags": ["a"]}, {"n": 2}], DICTS)
    assert source.schema == DICTS
    assert table_of(source).to_pylist() == [{"n": 1, "tags": ["a"]}, {"n": 2, "tags": None}]


@pytest.mark.parametrize(
    ("values", "arrow"),
    [
        ([1, 2], pa.int64()),
        (["a", "b"], pa.string()),
        ([1.5], pa.float64()),
        ([True], pa.bool_()),
        ([b"x"], pa.binary()),
        ([dt.date(2026, 1, 2)], pa.date32()),
        ([dt.datetime(2026, 1, 2, tzinfo=dt.UTC)], pa.timestamp("ms", "UTC")),
        ([None, 3], pa.int64()),
    ],
)
def test_plain_values_are_one_column(values: list[Any], arrow: pa.DataType) -> None:
    source = elements_source(values, None)
    assert source.schema == pa.schema([pa.field("value", arrow, nullable=None in values)])
    assert table_of(source).column("value").to_pylist() == values


def test_tables_of_other_libraries_have_plain_columns() -> None:
    frame = pl.DataFrame({"user": ["ann", "bob"], "n": [1, 2]})
    assert records_source(frame, None).schema.types == [pa.string(), pa.int64()]
    coded = pa.table({"user": pa.array(["ann", "bob", "ann"]).dictionary_encode()})
    assert table_of(records_source(coded, None)).to_pydict() == {"user": ["ann", "bob", "ann"]}
    table = pa.table({"amount": np.arange(2), "user": ["a", "b"], "note": ["", None]})
    typed = records_source(table, Purchase)
    assert typed.schema.names == ["user", "amount", "note"]
    assert typed.record_type is Purchase


def test_a_function_is_typed_by_its_annotation_or_by_type() -> None:
    source = records_source(purchases, None)
    assert isinstance(source, FunctionSource)
    assert source.record_type is Purchase
    assert "exactly once if purchases yields the same records each time" in source.plan_note
    value = pa.field("value", pa.int64(), nullable=False)
    assert records_source(any_numbers, int).schema == pa.schema([value])
    assert records_source(functools.partial(needs_one, 3), int).record_type is None


Make = Callable[[], object]
WRONG: Any = "x"
TEXTS = pa.table({"user": ["a"], "amount": ["x"], "note": ["y"]})

OF_ELEMENTS: list[tuple[list[Any], Any, str]] = [
    ([[1, 2]], None, r"takes the elements themselves: write job.from_records\(rows\)"),
    ([purchases], None, r"write job.from_records\(function\)"),
    ([], None, r"from_elements\(...\): there are no records to tell the columns from"),
    ([Purchase("a", 1), 2], None, "record 2: 2 is no Purchase, but a int"),
    ([Purchase("a", WRONG)], None, "record 1: field 'amount' is declared int but is 'x'"),
    ([object()], None, "is a object, which is not a record"),
    ([1, "a"], None, "record 2: field 'value' is declared int but is 'a'"),
    ([1], list, "type=list is not a record type: give a dataclass"),
    ([1], pa.schema([]), "a schema without columns"),
]
OF_RECORDS: list[tuple[Any, Any, str]] = [
    ([{"n": 1}, {"n": "a"}], None, "field 'n' has values of several types"),
    ([{"n": None}], None, "field 'n' is None everywhere: say type="),
    ([{"n": 1}, 2], None, "2 is a int among dicts"),
    ([{"tag": []}], DICTS, "record 1: .* has 'tag', which is not a column .did you mean 'tags'"),
    ([{"tags": []}], DICTS, "record 1: field 'n' is missing, and may not be null"),
    ([{"n": 1}, {"n": "x"}], DICTS, "record 2: field 'n' is int64, but is 'x'"),
    ([3], DICTS, "record 1: 3 is a int; expected a dict"),
    ([{"usr": "a"}], Purchase, "record 1: .* makes no Purchase: .*'usr'"),
    ("in.jsonl", None, r"write job.from_files\('in.jsonl', ...\)"),
    ({"n": 1}, None, r"write job.from_elements\(row\)"),
    (purchases(), None, "can be gone through once.*give the function that makes it"),
    (itertools.repeat("a"), None, "can be gone through once"),
    (3, None, "3 is a int: give a list of records, a table, or a function"),
    (any_numbers, None, "what any_numbers yields is not known.*-> Iterator"),
    (needs_one, None, "needs_one needs the argument 'n'"),
    (pa.table({"user": ["a"]}), Purchase, "the table has no column 'amount'; it has user"),
    (TEXTS, Purchase, "the table does not fit type=: "),
    (np.zeros(3), None, "which is not a record"),
    (pa.table({"n": np.zeros(9 << 20)}), None, "72 MiB, .*: at most 64 MiB. Write them to files"),
]


@pytest.mark.parametrize(("elements", "of", "sentence"), OF_ELEMENTS)
def test_each_mistake_with_elements_has_its_sentence(elements: list[Any], of: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        elements_source(elements, of)


@pytest.mark.parametrize(("records", "of", "sentence"), OF_RECORDS)
def test_each_mistake_with_records_has_its_sentence(records: Any, of: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        records_source(records, of)
