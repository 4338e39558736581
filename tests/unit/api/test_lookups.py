"""lookup_join: each row with what a table somewhere else has for its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job, WatermarkStrategy, col, errors_to
from onceflow.runtime.errors import GraphError
from onceflow.testing import run, simulate


@dataclass(frozen=True)
class Sale:
    id: int
    item: str | None
    ts: int = 0


@dataclass(frozen=True)
class Price:
    item: str
    cents: int
    id: int = 7


PRICES = {"tea": 250, "cup": 900}
SALES = [Sale(1, "tea"), Sale(2, "pot"), Sale(3, "cup"), Sale(4, None), Sale(5, "tea")]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_what_is_found_has_to_meet_the_condition(how: str) -> None:
    job = Job("sales")
    where = (col("cents") < 900) & (col("id") != col("id_right") - 6)
    sales(job).lookup_join(both_prices, on="item", how=how, where=where).print(uid="out")
    with run(job, sales=SALES) as test:
        found = [(row["id"], row["cents"]) for row in test.rows("out")]
    # The pot finds nothing, the cup costs too much, and with the first sale a price of its own number comes.
    expected = [(1, None), (2, None), (3, None), (4, None), (5, 250), (5, 251)]
    assert found == [row for row in expected if how == "left" or row[1]]


def both_prices(item: str) -> list[Price]:
    return [Price(item, PRICES[item] + more) for more in (0, 1)] if item in PRICES else []


class Table:
    """A Lookup that counts what it is asked."""

    keys = ("item",)
    schema = pa.schema([("item", pa.string()), ("cents", pa.int64())])
    keys_at_once = 2

    def __init__(self) -> None:
        self.asked: list[list[str]] = ASKED

    async def look_up(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], Sequence[Any]]:
        names = [name for (name,) in keys]
        ASKED.append(names)
        if "bad" in names:
            raise LookupError("bad")
        return {(name,): [{"item": name, "cents": PRICES[name]}] for name in names if name in PRICES}


ASKED: list[list[str]] = []


def sales(job: Job) -> Any:
    return job.from_elements(Sale(0, "tea"), uid="sales")


async def price(item: str) -> Price | None:
    return Price(item, PRICES[item]) if item in PRICES else None


def both(item: str) -> list[Price]:
    return [Price(item, cents) for cents in (1, 2)] if item == "tea" else []


@pytest.mark.parametrize("how", ["inner", "left"])
def test_rows_come_with_what_is_found_for_their_key(how: str) -> None:
    job = Job("sales")
    sales(job).lookup_join(price, on="item", how=how).print(uid="out")
    with run(job, sales=SALES) as test:
        found = [(row["id"], row["cents"], row["id_right"]) for row in test.rows("out")]
    assert found == [
        row
        for row in [(1, 250, 7), (2, None, None), (3, 900, 7), (4, None, None), (5, 250, 7)]
        if how == "left" or row[1]
    ]


def test_several_rows_of_a_key_are_several_rows() -> None:
    job = Job("sales")
    sales(job).lookup_join(both, on="item", how="left").print(uid="out")
    with run(job, sales=SALES) as test:
        found = [(row["id"], row["cents"]) for row in test.rows("out")]
    assert found == [(1, 1), (1, 2), (2, None), (3, None), (4, None), (5, 1), (5, 2)]


def test_equal_keys_are_asked_once_several_in_a_request_and_from_the_cache_for_a_while() -> None:
    ASKED.clear()
    job = Job("sales")
    sales(job).lookup_join(Table(), on="item", how="left", cache=(10, "1 min")).print(uid="out")
    with run(job, sales=SALES) as test:
        assert ASKED == [["tea", "pot"], ["cup"]]
        test.push(sales=[Sale(6, "tea"), Sale(7, "pot"), Sale(8, "jug")])
        assert ASKED[2:] == [["jug"]], "what is not there is known, too"
        test.advance_clock("1 min").push(sales=[Sale(9, "tea")])
        assert ASKED[3:] == [["tea"]]
        assert [row["cents"] for row in test.rows("out")] == [250, None, 900, None, 250, 250, None, None, 250]


def test_of_a_request_that_fails_only_the_rows_go_aside_that_are_to_blame() -> None:
    ASKED.clear()
    job = Job("sales")
    joined = sales(job).lookup_join(Table(), on="item", on_error=errors_to("failed"))
    joined.print(uid="out")
    joined.side_output("failed").print(uid="failed")
    with run(job, sales=[Sale(1, "tea"), Sale(2, "bad"), Sale(3, "bad")]) as test:
        assert [row["id"] for row in test.rows("out")] == [1]
        assert [row["record"]["id"] for row in test.rows("failed")] == [2, 3]
    assert ASKED == [["tea", "bad"], ["tea"], ["bad"]]


def test_each_row_is_joined_once_whatever_is_killed() -> None:
    job = Job("sales", max_parallelism=8)
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts")
    stream = job.from_elements(Sale(0, "tea"), watermarks=times, uid="sales")
    stream.lookup_join(Table(), on="item", how="left", capacity=3, cache=(1, "1 h")).collect(uid="out")
    rows = [Sale(n, ["tea", "pot", "cup", None][n % 4], n) for n in range(20)]
    assert simulate(job, {"sales": rows}, seeds=8).rows == {"out": 20}


def untyped(item: str):  # type: ignore[no-untyped-def]
    return None


def number(item: str) -> int:
    return 1


@pytest.mark.parametrize(
    ("lookup", "options", "said"),
    [
        (price, {"on": "itm"}, "no key column 'itm'"),
        (price, {"on": []}, "name the columns that are the key"),
        (price, {"on": "item", "how": "right"}, "how='right': write one of inner, left"),
        (price, {"on": "item", "where": "cents"}, "where='cents': expected a polars expression"),
        (price, {"on": "item", "where": col("cent") > 1}, "no column 'cent'"),
        (price, {"on": "item", "cache": 5}, "cache=5: write how many keys"),
        (Table(), {"on": ["item", "id"]}, "on= has 2 columns, and Table is asked by item"),
        (untyped, {"on": "item"}, "no return annotation"),
        (number, {"on": "item"}, "finds int, which is not a record type"),
    ],
)
def test_what_can_not_be_meant_is_refused(lookup: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        sales(Job("sales")).lookup_join(lookup, **options)
