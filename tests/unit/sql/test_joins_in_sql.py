"""Joins of job.sql(...): names, event times, state, and what is refused. Results as such are judged by DuckDB
in properties/test_sql_joins."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow import Job, WatermarkStrategy
from onceflow.runtime.errors import GraphError
from onceflow.runtime.sql import join_steps, joined_times
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import run

TIMES = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts")
SECOND = 1_000
NEAR = "p.ts BETWEEN o.ts - INTERVAL '1' SECOND AND o.ts + INTERVAL '1' SECOND"
AFTER = "p.ts BETWEEN o.ts AND o.ts + INTERVAL '2' SECOND"
BEFORE = "p.ts BETWEEN o.ts - INTERVAL '2' SECOND AND o.ts"


@dataclass(frozen=True)
class Order:
    id: str | None
    item: str
    ts: int


@dataclass(frozen=True)
class Payment:
    id: str | None
    cents: int
    ts: int


ORDERS = [Order("a", "tea", 0), Order("b", "cup", SECOND), Order("c", "pot", 3 * SECOND)]
PAYMENTS = [Payment("a", 5, 1_500), Payment("b", 7, 500), Payment("d", 9, 3 * SECOND)]


def rows(query: str, **more: Any) -> list[dict[str, Any]]:
    """What a job says of the query over `o` and `p`."""
    job = Job("asked")
    orders = job.from_elements(*ORDERS, watermarks=TIMES, uid="orders")
    payments = job.from_elements(*PAYMENTS, watermarks=TIMES, uid="payments")
    job.sql(query, o=orders, p=payments, **more).collect(uid="result")
    orders.collect(uid="all-orders")
    payments.collect(uid="all-payments")
    with run(job, orders=ORDERS, payments=PAYMENTS) as test:
        test.finish()
        return test.rows("result")


def asked(query: str) -> str | None:
    """The query over `o` and `p` with event time, and `n` without. The name of the result's event time."""
    job = Job("asked")
    streams = {
        "o": job.from_elements(*ORDERS, watermarks=TIMES, uid="orders"),
        "p": job.from_elements(*PAYMENTS, watermarks=TIMES, uid="payments"),
        "n": job.from_elements(*ORDERS, uid="without"),
    }
    return job.sql(query, **streams)._input.rows.event_time


def test_names() -> None:
    """A column is found in its own table, in the only one that has it, and by * of one."""
    (row,) = rows(f"SELECT o.*, cents, p.ts AS paid FROM o JOIN p ON o.id = p.id AND {AFTER}")
    assert row == {"id": "a", "item": "tea", "ts": 0, "cents": 5, "paid": 1_500}
    (row,) = rows(f"SELECT x.id, y.ts FROM o AS x JOIN (SELECT id, ts FROM p) AS y ON x.id = y.id AND {AFTER}"
                  .replace("p.ts", "y.ts").replace("o.ts", "x.ts"))  # fmt: skip
    assert row == {"id": "a", "ts": 1_500}


def test_a_table_meets_itself() -> None:
    query = (
        "SELECT x.item, y.item AS next FROM o x JOIN o y ON UPPER('k') = UPPER('k') AND x.id <> y.id "
        "AND CHAR_LENGTH(x.id) = CHAR_LENGTH(y.id) "
        "AND y.ts > x.ts AND y.ts <= x.ts + INTERVAL '1' SECOND"
    )
    assert rows(query) == [{"item": "tea", "next": "cup"}]


def test_several_joins_and_groups() -> None:
    """The event time of the first is a column of it, so a second join and windows are possible."""
    query = f"""
        SELECT o.item, COUNT(*) AS n, SUM(cents) AS cents
        FROM o JOIN p ON o.id = p.id AND {AFTER}
        JOIN o AS again ON again.id = p.id AND again.ts BETWEEN p.ts - INTERVAL '5' SECOND AND p.ts
        WHERE cents > 1 AND cents / 1 > 1
        GROUP BY o.item, TUMBLE(p.ts, INTERVAL '1' SECOND)
        HAVING SUM(p.cents) > 0
    """
    assert rows(query) == [{"item": "tea", "n": 1, "cents": 5}]


def test_windows_over_the_later_time() -> None:
    query = f"""
        WITH pairs AS (
            SELECT GREATEST(o.ts, p.ts) AS at, cents FROM o JOIN p USING (id) WHERE {NEAR.replace("1'", "2'")}
        )
        SELECT window_start, SUM(cents) AS cents
        FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(at), INTERVAL '1' SECOND)) GROUP BY window_start, window_end
    """
    assert rows(query) == [{"window_start": SECOND, "cents": 12}]


EVENT_TIMES = [
    ("JOIN", AFTER, "p.ts", True),
    ("JOIN", AFTER, "o.ts", False),
    ("JOIN", BEFORE, "o.ts", True),
    ("JOIN", BEFORE, "p.ts", False),
    ("JOIN", "p.ts = o.ts", "o.ts", True),
    ("JOIN", "p.ts = o.ts", "p.ts", True),
    ("JOIN", NEAR, "o.ts", False),
    ("JOIN", NEAR, "p.ts", False),
    ("JOIN", NEAR, "GREATEST(o.ts, p.ts)", True),
    ("JOIN", NEAR, "greatest(p.ts, o.ts)", True),
    ("JOIN", NEAR, "LEAST(p.ts, o.ts)", False),
    ("LEFT JOIN", BEFORE, "o.ts", True),
    ("LEFT JOIN", AFTER, "p.ts", False),
    ("LEFT JOIN", AFTER, "o.ts", False),
    ("LEFT JOIN", AFTER, "COALESCE(p.ts, o.ts)", True),
    ("LEFT JOIN", AFTER, "COALESCE(o.ts, p.ts)", False),
    ("LEFT JOIN", NEAR, "COALESCE(p.ts, o.ts)", False),
    ("LEFT JOIN", NEAR, "GREATEST(p.ts, o.ts)", False),
    ("RIGHT JOIN", AFTER, "p.ts", True),
    ("RIGHT JOIN", BEFORE, "o.ts", False),
    ("RIGHT JOIN", BEFORE, "COALESCE(o.ts, p.ts)", True),
    ("FULL JOIN", AFTER, "p.ts", False),
    ("FULL JOIN", AFTER, "COALESCE(p.ts, o.ts)", True),
    ("FULL JOIN", BEFORE, "COALESCE(o.ts, p.ts)", True),
]


@pytest.mark.parametrize(("how", "bounds", "column", "is_it"), EVENT_TIMES)
def test_which_column_is_the_event_time(how: str, bounds: str, column: str, is_it: bool) -> None:
    query = f"SELECT {column} AS at FROM o {how} p ON o.id = p.id AND {bounds}"
    assert asked(query) == ("at" if is_it else None)


@pytest.mark.parametrize(("how", "bounds", "column"), [e[:3] for e in EVENT_TIMES if e[3]])
def test_it_is_the_time_of_the_rows(how: str, bounds: str, column: str) -> None:
    """What the rows are stamped with is what the column says: a window of one ms has that time alone."""
    query = f"""
        WITH pairs AS (SELECT {column} AS at, o.item FROM o {how} p ON o.id = p.id AND {bounds})
        SELECT window_start, MIN(at) AS first, MAX(at) AS last
        FROM TABLE(TUMBLE(TABLE pairs, DESCRIPTOR(at), INTERVAL '0.001' SECOND))
        GROUP BY window_start, window_end
    """
    for row in rows(query):
        assert row["window_start"] == row["first"] == row["last"]
    assert rows(query) or bounds == "p.ts = o.ts"


def test_other_joins_have_their_event_time() -> None:
    assert asked("SELECT o.ts FROM o JOIN p FOR SYSTEM_TIME AS OF o.ts AS v ON o.id = v.id") == "ts"
    assert asked("SELECT v.ts FROM o JOIN p FOR SYSTEM_TIME AS OF o.ts AS v ON o.id = v.id") is None
    windows = "ON {0}.id = r.id AND {0}.window_start = r.window_start AND {0}.window_end = r.window_end"
    both = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' SECOND)) AS {}"
    of = f"FROM {both.format('o', 'l')} {{}} {both.format('p', 'r')} {windows.format('l')}"
    assert asked(f"SELECT l.window_time {of.format('JOIN')}") == "window_time"
    assert asked(f"SELECT r.window_time {of.format('LEFT JOIN')}") is None
    assert asked(f"SELECT l.ts {of.format('JOIN')}") is None
    grouped = (
        f"SELECT l.window_start, COUNT(*) AS n {of.format('JOIN')} GROUP BY l.window_start, l.window_end"
    )
    assert rows(grouped) == [{"window_start": 0, "n": 0}][:0]


def test_times_finer_than_a_millisecond_are_compared_as_they_are() -> None:
    def at(us: int) -> dt.datetime:
        return dt.datetime(2026, 1, 1, 0, 0, 1, us, tzinfo=dt.UTC)

    job = Job("asked")
    streams = [
        job.from_records(
            pa.table({"id": ["k"] * len(all_us), "ts": pa.array(map(at, all_us), pa.timestamp("us", "UTC"))}),
            watermarks=TIMES,
            uid=uid,
        )
        for uid, all_us in (("a", [500, 1_000]), ("b", [499, 500, 1_499, 1_501, 2_001]))
    ]
    query = (
        "SELECT a.ts, b.ts AS other FROM a JOIN b ON a.id = b.id AND b.ts >= a.ts "
        "AND b.ts <= a.ts + INTERVAL '0.001' SECOND"
    )
    result = job.sql(query, a=streams[0], b=streams[1]).collect()
    job.run(master="threads[1]")
    found = {(row["ts"].microsecond, row["other"].microsecond) for row in result}
    assert found == {(500, 500), (500, 1_499), (1_000, 1_499), (1_000, 1_501)}


def test_state_knows_the_condition() -> None:
    """An outer join with another condition does not continue with the matches of the first."""

    def said(condition: str) -> str:
        join = f"SELECT o.id, cents FROM o LEFT JOIN p ON o.id = p.id AND {AFTER} AND {condition}"
        job = Job("asked")
        streams = [
            job.from_elements(*each, watermarks=TIMES, uid=uid)
            for each, uid in ((ORDERS, "orders"), (PAYMENTS, "payments"))
        ]
        job.sql(join, o=streams[0], p=streams[1], uid="pairs")
        (step,) = [step for step in job._steps if step.uid == "pairs"]
        schemas = [each.rows.schema for each in step.inputs]
        return repr(step.work.build(*schemas).state)  # type: ignore[union-attr]

    assert said("10 / cents > CHAR_LENGTH(item)") != said("10 % cents > CHAR_LENGTH(item)")
    assert said("10 / cents > CHAR_LENGTH(item)") == said("10 / p.cents > CHAR_LENGTH(o.item)")


JOINED = "SELECT o.id FROM o JOIN p ON"
REFUSED = [
    (
        f"{JOINED} o.id = p.id",
        "column 25: a join needs both bounds of time, or it would keep all rows for good: add AND p.ts BE",
    ),
    (
        f"{JOINED} o.id = p.id AND p.ts >= o.ts",
        "column 25: a join needs both bounds of time, or it would keep all rows for good: add AND p.ts BE",
    ),
    (
        f"{JOINED} {NEAR}",
        "column 25: a join needs an equal key, by which rows are distributed: add a condition as in a.id ",
    ),
    (
        f"{JOINED} o.id = p.id AND p.ts > o.ts AND p.ts < o.ts",
        "column 25: no two times are within these bounds: look which of them is the lower one",
    ),
    (
        f"{JOINED} o.id = p.cents AND {NEAR}",
        "column 30: id = cents: STRING and BIGINT can't be compared: CAST one of them",
    ),
    (
        f"{JOINED} o.idd = p.id AND {NEAR}",
        "column 30: there is no column 'idd' in 'o' (did you mean 'id'?); there are id, item, ts",
    ),
    (f"{JOINED} o.id = q.id AND {NEAR}", "column 37: there is no table 'q'; there are o, p"),
    (
        f"SELECT id FROM o JOIN p ON o.id = p.id AND {NEAR}",
        "column 8: 'id' is a column of more than one table: write o.id or p.id",
    ),
    (
        f"SELECT * FROM o JOIN p ON o.id = p.id AND {NEAR}",
        "column 8: two columns of the result are called 'id': give one another name with AS",
    ),
    (
        f"SELECT q.* FROM o JOIN p ON o.id = p.id AND {NEAR}",
        "column 8: there is no table 'q'; there are 'o', 'p'",
    ),
    (
        "SELECT o.id FROM o JOIN o ON o.id = o.id",
        "column 25: two tables are called 'o': give one another name with AS",
    ),
    (
        "SELECT o.id FROM o JOIN n ON o.id = n.id AND n.ts = o.ts",
        "column 25: a join needs bounds of time, or it would keep all rows for good, but the event time o",
    ),
    (
        "SELECT o.id FROM o CROSS JOIN p",
        "column 31: CROSS JOIN is not supported: write JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN with ON",
    ),
    (
        "SELECT o.id FROM o NATURAL JOIN p",
        "column 33: NATURAL JOIN is not supported: write JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN with ON",
    ),
    (
        "SELECT o.id FROM o LEFT SEMI JOIN p ON o.id = p.id",
        "column 35: SEMI JOIN is not supported: write JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN with ON",
    ),
    (
        "SELECT o.id FROM o, p",
        "column 21: every row of one table would meet every row of the other: write a JOIN b ON a.id = b.",
    ),
    ("SELECT o.id FROM o JOIN p USING (item)", "column 34: USING: there is no column 'item' in 'p': use ON"),
    (
        f"SELECT o.id FROM o LEFT JOIN p ON o.id = p.id WHERE {NEAR}",
        "column 30: a join needs both bounds of time, or it would keep all rows for good: add AND p.ts BE",
    ),
    (
        "SELECT o.id FROM o JOIN p FOR SYSTEM_TIME AS OF p.ts AS v ON o.id = v.id",
        "column 49: there is no table 'p'; there are o",
    ),
    (
        "SELECT o.id FROM n AS o JOIN p FOR SYSTEM_TIME AS OF o.ts AS v ON o.id = v.id",
        "column 54: ts is not known to be the event time of these rows: windows need a column that is, as",
    ),
    (
        "SELECT o.id FROM o JOIN n FOR SYSTEM_TIME AS OF o.ts AS v ON o.id = v.id",
        "column 25: the event time of 'v', since when a version holds, is not known: its source needs wat",
    ),
    (
        "SELECT o.id FROM o FULL JOIN p FOR SYSTEM_TIME AS OF o.ts AS v ON o.id = v.id",
        "column 30: FULL JOIN of versions: there are only JOIN and LEFT JOIN, use one of them",
    ),
    (
        "SELECT o.id FROM o FOR SYSTEM_TIME AS OF ts AS o",
        "column 42: VERSION is not supported in a query over streams: leave it out",
    ),
    (
        f"SELECT COUNT(*) AS n FROM o JOIN p ON o.id = p.id AND {NEAR} GROUP BY TUMBLE(p.ts, INTERVA"
        "L '1' SECOND)",
        "column 142: p.ts is not the event time of these rows, which is GREATEST(o.ts, p.ts): SELECT that",
    ),
    (
        f"{JOINED} o.id = p.id AND {NEAR} JOIN o AS x ON x.id = o.id AND x.ts = o.ts",
        "column 122: a join needs bounds of time, or it would keep all rows for good, but the event time ",
    ),
]


@pytest.mark.parametrize(("query", "said"), REFUSED)
def test_refused(query: str, said: str) -> None:
    with pytest.raises(GraphError) as raised:
        asked(query)
    assert str(raised.value).startswith(f"SQL, line 1, {said}")


WINDOWED = (
    "SELECT l.id FROM TABLE({}(TABLE o, DESCRIPTOR(ts), {})) AS l "
    "JOIN TABLE({}(TABLE p, DESCRIPTOR(ts), {})) AS r ON l.id = r.id"
)
ONE, TWO = "INTERVAL '1' SECOND", "INTERVAL '1' SECOND, INTERVAL '2' SECOND"
SAME = " AND l.window_start = r.window_start AND l.window_end = r.window_end"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (WINDOWED.format("TUMBLE", ONE, "HOP", TWO) + SAME, "only rows in windows of one kind and size"),
        (WINDOWED.format("SESSION", ONE, "SESSION", ONE) + SAME, "only rows in windows of one kind and size"),
        (
            WINDOWED.format("TUMBLE", ONE, "TUMBLE", ONE) + " AND l.window_start = r.window_start",
            "windows are the same if both bounds are",
        ),
        (WINDOWED.format("HOP", TWO, "HOP", TWO), "rows of HOP can be joined by their windows only"),
        (
            WINDOWED.format("HOP", TWO, "HOP", TWO).replace("l.id = r.id", SAME[5:]),
            "a join needs an equal key, by which rows are distributed",
        ),
    ],
)
def test_refused_windows(query: str, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        asked(query)


@pytest.mark.parametrize(
    ("mutant", "query", "expected"),
    [
        (
            Mutant(
                "the left time is the event time, whatever the bounds",
                [(joined_times, "_is_later", lambda ms: True)],
            ),
            f"SELECT o.ts FROM o JOIN p ON o.id = p.id AND {NEAR}",
            None,
        ),
    ],
)
def test_a_mutant_dies(mutant: Mutant, query: str, expected: str | None) -> None:
    assert asked(query) == expected
    with mutated(mutant):
        assert asked(query) != expected


def test_a_mutant_of_fine_times_dies() -> None:
    with (
        mutated(Mutant("fine times are compared in ms", [(join_steps, "_is_finer", lambda relation: False)])),
        pytest.raises(AssertionError),
    ):
        test_times_finer_than_a_millisecond_are_compared_as_they_are()


def test_a_mutant_of_the_name_of_a_condition_dies() -> None:
    with (
        mutated(Mutant("a condition has no name", [(join_steps, "_named", lambda made, node: made)])),
        pytest.raises(AssertionError),
    ):
        test_state_knows_the_condition()


def test_a_column_that_the_join_adds_is_found() -> None:
    """Two tables with columns of each other's new names."""
    job = Job("asked")
    first = job.from_elements(*ORDERS, watermarks=TIMES, uid="orders").select(
        "id", "ts", id_right=pl.col("item")
    )
    second = job.from_elements(*ORDERS, watermarks=TIMES, uid="again")
    query = "SELECT o.id_right, p.id FROM o LEFT JOIN p ON o.id = p.id AND p.ts = o.ts"
    with pytest.raises(GraphError, match=r"two columns would be called 'id_right'"):
        job.sql(query, o=first, p=second)
