"""Made-up values: by seed, name and number alone, of the kind that was asked for."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.generator.random_columns import RandomColumns
from onceflow.runtime.errors import GraphError

SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("amount", pa.int32()),
        ("ratio", pa.float64()),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("ms", "UTC")),
        ("day", pa.date32()),
        ("id", pa.int64()),
    ]
)


def columns(seed: int = 1, fields: dict[str, Any] | None = None, per_s: float = 10) -> RandomColumns:
    return RandomColumns(SCHEMA, seed, per_s, fields or {})


def made(of: RandomColumns, first: int, count: int) -> pa.Table:
    return pa.Table.from_batches([of.batch(np.arange(first, first + count), SCHEMA.names)])


def test_a_record_is_the_same_however_it_is_cut() -> None:
    whole = made(columns(), 0, 1_000)
    parts = pa.concat_tables([made(columns(), 0, 1), made(columns(), 1, 700), made(columns(), 701, 299)])
    assert parts.equals(whole)
    assert columns().batch(np.array([7]), ["amount"]).column(0)[0] == whole.column("amount")[7]
    assert (
        not made(columns(seed=2), 0, 1_000)
        .select(["user", "amount"])
        .equals(whole.select(["user", "amount"]))
    )


def test_the_values_of_a_seed_do_not_change_with_a_release() -> None:
    rows = made(columns(), 0, 5).select(["user", "amount"]).to_pylist()
    assert [(row["user"], row["amount"]) for row in rows] == GOLDEN


def test_what_is_not_said_has_its_usual_values() -> None:
    rows = made(columns(), 0, 2_000)
    assert set(rows.column("user").to_pylist()) == {f"user-{n}" for n in range(10)}
    assert set(rows.column("amount").to_pylist()) == set(range(100))
    assert 0 <= min(rows.column("ratio").to_pylist()) < 0.01
    assert 0.99 < max(rows.column("ratio").to_pylist()) <= 1
    assert set(rows.column("ok").to_pylist()) == {False, True}
    times = rows.column("at").to_pylist()
    assert times[:2] == [
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=n) for n in (0, 100)
    ]
    assert rows.column("day").to_pylist()[0] == dt.date(2026, 1, 1)


def test_what_is_said_counts() -> None:
    fields = {
        "user": ["ann", "bob"],
        "amount": (-3, 3),
        "ratio": (5, 6),
        "id": "number",
        "day": [dt.date(2026, 2, 3)],
    }
    rows = made(columns(fields=fields), 100, 500).to_pylist()
    assert {row["user"] for row in rows} == {"ann", "bob"}
    assert {row["amount"] for row in rows} == set(range(-3, 4))
    assert all(5 <= row["ratio"] <= 6 for row in rows)
    assert [row["id"] for row in rows] == list(range(100, 600))
    assert {row["day"] for row in rows} == {dt.date(2026, 2, 3)}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"usr": ["a"]}, "fields has 'usr', which is not a column .did you mean 'user'"),
        ({"amount": ["a"]}, r"fields\['amount'\]=\['a'\] is nothing to fill column 'amount', which is int32"),
        ({"amount": (3, 1)}, "there is no number from 3 to 1"),
        ({"user": "often"}, "'often' is none of these"),
        ({"amount": (1, 2, 3)}, r"\(1, 2, 3\) is none of these"),
    ],
)
def test_each_mistake_has_its_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        columns(fields=fields).check("job.data_generator(...)")


def test_a_column_for_which_there_are_no_values_is_refused() -> None:
    nested = RandomColumns(pa.schema([("tags", pa.list_(pa.string()))]), 1, 10, {})
    with pytest.raises(GraphError, match="there are no made-up values for column 'tags', which is list<"):
        nested.check("job.data_generator(...)")
    RandomColumns(nested.schema, 1, 10, {"tags": [["a"], []]}).check("job.data_generator(...)")


GOLDEN = [("user-7", 1), ("user-0", 98), ("user-2", 80), ("user-9", 6), ("user-9", 76)]
