"""job.sql(...): what queries become, in whole jobs."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job, WatermarkStrategy, col
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError, OnceflowError, UsageError
from onceflow.runtime.sql import scalars
from onceflow.runtime.sql.checks import NoSuchValueError
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import run

TIMES = WatermarkStrategy.bounded_out_of_orderness("1 d", event_time="ts")
MINUTE = 60_000


@dataclass(frozen=True)
class Place:
    city: str
    zip: int


@dataclass(frozen=True)
class Visit:
    user: str | None
    amount: int | None
    ts: int
    place: Place | None = None


@dataclass(frozen=True)
class Reading:
    sensor: str
    at: dt.datetime


VISITS = [
    Visit("ann", 5, 0, Place("Bern", 3000)),
    Visit("ann", None, 30_000),
    Visit(None, 7, 61_000),
    Visit("bob", 2, 119_999),
    Visit("ann", 1, 125_000),
]


def rows(query: str, visits: list[Visit] = VISITS, uid: str | None = None) -> list[dict[str, Any]]:
    """What a job says of the query."""
    job = Job("asked")
    stream = job.from_elements(*visits, watermarks=TIMES, uid="visits")
    job.sql(query, uid=uid, visits=stream).collect(uid="result")
    with run(job, visits=visits) as test:
        test.finish()
        return list(test.rows("result"))


def stream_of(query: str, uid: str | None = None) -> Stream[Any]:
    job = Job("asked")
    return job.sql(query, uid=uid, visits=job.from_elements(*VISITS, watermarks=TIMES, uid="visits"))


def test_a_query_of_a_query() -> None:
    found = rows(
        "SELECT u, n + 1 AS m FROM (SELECT user AS u, amount AS n FROM visits WHERE "
        "amount > 1) AS x WHERE u = 'bob'"
    )
    assert found == [{"u": "bob", "m": 3}]


def test_a_list_of_thousands() -> None:
    numbers = ", ".join(map(str, range(2, 10_000)))
    assert [row["amount"] for row in rows(f"SELECT amount FROM visits WHERE amount IN ({numbers})")] == [
        5,
        7,
        2,
    ]


def test_columns_and_fields() -> None:
    found = rows(
        "SELECT v.*, v.place.city AS city, place.zip + 1 AS zip FROM visits AS v WHERE v.place IS NOT NULL"
    )
    assert [(row["user"], row["city"], row["zip"]) for row in found] == [("ann", "Bern", 3001)]


def test_a_query_with_a_name_is_made_once() -> None:
    stream = stream_of(
        "WITH minutes AS (SELECT user, window_start, COUNT(*) AS n FROM "
        "TABLE(TUMBLE(TABLE visits, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) GROUP BY user, window_start, window_end), "
        "unread AS (SELECT user FROM visits) "
        "SELECT user, n FROM minutes WHERE n > 1 UNION ALL SELECT user, -n FROM minutes WHERE n = 1"
    )
    names = [step.name for step in stream._job._steps]
    assert sum(name.startswith("window") for name in names) == 1
    found = []
    stream.collect(uid="result")
    with run(stream._job, visits=VISITS) as test:
        test.finish()
        found = [(row["user"], row["n"]) for row in test.rows("result")]
    assert sorted(found, key=str) == [("ann", -1), ("ann", 2), ("bob", -1), (None, -1)]


def test_rows_in_tumbling_windows_need_no_group() -> None:
    found = rows(
        "SELECT user, window_start, window_end, window_time FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(ts), "
        "INTERVAL '1' MINUTE)) WHERE window_start > 0 AND user IS NOT NULL"
    )
    assert [tuple(row.values()) for row in found] == [
        ("bob", MINUTE, 2 * MINUTE, 2 * MINUTE - 1),
        ("ann", 2 * MINUTE, 3 * MINUTE, 3 * MINUTE - 1),
    ]


def test_windows_of_windows() -> None:
    inner = (
        "SELECT user, window_start, window_end, window_time, SUM(amount) AS s FROM "
        "TABLE(TUMBLE(TABLE visits, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY user, window_start, window_end, window_time"
    )
    by_minute = rows(
        f"SELECT window_start, SUM(s) AS s FROM ({inner}) AS m GROUP BY window_start, window_end"
    )
    assert sorted(tuple(row.values()) for row in by_minute) == [(0, 5), (MINUTE, 9), (2 * MINUTE, 1)]
    by_hour = rows(
        f"WITH m AS (SELECT user, s, window_time AS t FROM ({inner}) AS x) "
        "SELECT TUMBLE_START(t, INTERVAL '1' HOUR) AS h, SUM(s) AS s FROM m GROUP BY "
        "TUMBLE(t, INTERVAL '1' HOUR)"
    )
    assert by_hour == [{"h": 0, "s": 15}]


def test_a_result_is_a_table_of_the_next_query() -> None:
    job = Job("asked")
    visits = job.from_elements(*VISITS, watermarks=TIMES, uid="visits")
    minutes = job.sql(
        "SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS t, COUNT(*) AS n FROM v GROUP "
        "BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        v=visits,
    )
    hours = job.sql(
        "SELECT SUM(n) AS n FROM m GROUP BY TUMBLE(t, INTERVAL '1' HOUR)", m=minutes.filter(col("n") > 0)
    )
    hours.collect(uid="result")
    with run(job, visits=VISITS) as test:
        test.finish()
        assert test.rows("result") == [{"n": 5}]


def test_windows_have_the_type_of_the_event_time() -> None:
    job = Job("asked")
    readings = [Reading("a", dt.datetime(2026, 1, 1, 0, 0, s, tzinfo=dt.UTC)) for s in (1, 59)]
    times = WatermarkStrategy.bounded_out_of_orderness("1 d", event_time="at")
    job.sql(
        "SELECT window_start AS s, FLOOR(window_end TO HOUR) AS h, COUNT(*) AS n FROM "
        "TABLE(TUMBLE(TABLE r, DESCRIPTOR(at), "
        "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end",
        r=job.from_elements(*readings, watermarks=times, uid="readings"),
    ).collect(uid="result")
    with run(job, readings=readings) as test:
        test.finish()
        midnight = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        assert test.rows("result") == [{"s": midnight, "h": midnight, "n": 2}]


def test_distinct_in_windows() -> None:
    found = rows(
        "SELECT DISTINCT user, window_start, window_end FROM TABLE(TUMBLE(TABLE visits, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    )
    assert len(found) == 4


def test_a_group_by_place_and_by_name() -> None:
    found = rows(
        "SELECT UPPER(user) AS u, COUNT(*) AS n FROM visits GROUP BY u, TUMBLE(ts, INTERVAL '1' HOUR)"
    )
    again = rows(
        "SELECT UPPER(user) AS u, COUNT(*) AS n FROM visits GROUP BY 1, TUMBLE(ts, INTERVAL '1' HOUR)"
    )
    assert sorted(found, key=str) == sorted(again, key=str)
    assert {row["u"]: row["n"] for row in found} == {"ANN": 3, "BOB": 1, None: 1}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("d + 1.25", Decimal("2.75")),
        ("d > 1.25 AND d = 1.5", True),
        ("-d", Decimal("-1.50")),
        ("u > i", True),
        ("i * i", 2**62 - 2**32 + 1),
        ("day < TIMESTAMP '2026-01-02 00:00:00'", True),
        ("EXTRACT(HOUR FROM berlin)", 1),
        ("CAST(berlin AS STRING)", "2001-09-09 01:46:40.000001"),
        ("CAST(CAST(berlin AS TIMESTAMP(3)) AS STRING)", "2001-09-09 01:46:40.000"),
        ("CAST(day AS STRING) || CAST(TRUE AS STRING)", "2026-01-01true"),
        ("nan = nan AND nan > 1e300", True),
        ("TRY_CAST(nan AS BIGINT)", None),
        ("CAST('x' AS BYTES)", b"x"),
        ("SUBSTRING('hello' FROM -1 FOR 3)", "h"),
        ("SPLIT_INDEX('a-b', '-', 1)", "b"),
        ("REPLACE('ab', '', 'x')", "ab"),
        ("REPLACE('ab', '', CAST(NULL AS STRING))", None),
        ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
        ("GREATEST(1, NULL)", None),
        ("LEAST(i, 2.5)", 2.5),
        ("ROUND(-2.5)", -3.0),
        ("TIMESTAMPDIFF(HOUR, berlin, berlin - INTERVAL '90' MINUTE)", -1),
        ("TIMESTAMPADD(MONTH, 1, TIMESTAMP '2026-01-31 00:00:00')", dt.datetime(2026, 2, 28)),
        ("CEIL(TIMESTAMP '2026-01-31 00:00:01' TO DAY)", dt.datetime(2026, 2, 1)),
        ("DATE_FORMAT(TO_TIMESTAMP_LTZ(1500, 3), 'yyyy-MM-dd''T''HH:mm:ss.SSS')", "1970-01-01T00:00:01.500"),
        ("TO_TIMESTAMP('2026-01-01T00:00:00.25')", dt.datetime(2026, 1, 1, 0, 0, 0, 250_000)),
        ("TO_TIMESTAMP('nothing')", None),
    ],
)
def test_values_of_all_types(expression: str, value: object) -> None:
    table = pa.table(
        {
            "d": pa.array([Decimal("1.50")], pa.decimal128(38, 2)),
            "u": pa.array([2**64 - 1], pa.uint64()),
            "i": pa.array([2**31 - 1], pa.int32()),
            "day": pa.array([dt.date(2026, 1, 1)]),
            "berlin": pa.array([10**15 + 1], pa.timestamp("us", tz="Europe/Berlin")),
            "nan": pa.array([float("nan")]),
        }
    )
    job = Job("asked")
    found = job.sql(f"SELECT {expression} AS x FROM t", t=job.from_records(table)).collect()
    job.run(master="threads[1]")
    assert [row["x"] for row in found] == [value]


# --- Values that there are not ---


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (
            "amount * 9223372036854775807",
            "SQL, line 1, column 8: amount * 9223372036854775807 does not fit BIGINT",
        ),
        ("1 / (amount - 5)", "division by zero: write NULLIF"),
        ("MOD(1, amount - 5)", "division by zero"),
        ("CAST(user AS INT)", "a value has no INT: use TRY_CAST"),
        ("LEFT(user, amount - 6)", "a length below 0"),
        ("TO_TIMESTAMP_LTZ(amount * 9000000000000000, 0)", "milliseconds"),
        ("TIMESTAMPADD(DAY, 9223372036854775800 + amount, TO_TIMESTAMP_LTZ(ts, 3))", "no time that fits"),
    ],
)
def test_a_value_that_there_is_not_ends_the_job(expression: str, said: str) -> None:
    with pytest.raises(OnceflowError, match=said.replace("*", r"\*").replace("(", r"\(")) as raised:
        rows(f"SELECT {expression} AS x FROM visits")
    assert "This error occurred" not in str(raised.value)


@pytest.mark.parametrize(
    "expression",
    [
        "CASE WHEN amount <> 5 THEN 1 / (amount - 5) END",
        "CASE amount WHEN 5 THEN 0 ELSE 1 / (amount - 5) END",
        "IF(amount = 5, 0, MOD(1, amount - 5))",
        "amount = 5 OR 1 / (amount - 5) > 0",
        "amount <> 5 AND 1 / (amount - 5) > 0",
        "COALESCE(NULLIF(amount - 5, 0), 1 / (amount - 4))",
        "CASE WHEN user = '7' THEN CAST(user AS INT) END",
    ],
)
def test_what_is_not_asked_for_does_not_fail(expression: str) -> None:
    query = f"SELECT {expression} AS x FROM visits"
    assert len(rows(query)) == len(VISITS)
    unguarded = Mutant("all rows are computed", [(scalars.Scalars, "where", lambda self, condition: self)])
    if "COALESCE" not in expression:
        with mutated(unguarded), pytest.raises(NoSuchValueError):
            rows(query)


def test_a_sum_that_does_not_fit_ends_the_job() -> None:
    with pytest.raises(OnceflowError, match="64 bits"):
        rows(
            "SELECT SUM(amount) AS s FROM visits GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
            [Visit("a", 2**62, 0), Visit("a", 2**62, 1)],
        )


# --- Uids, steps, the library ---


def test_uids_of_windows() -> None:
    query = (
        "SELECT user, COUNT(*) AS n FROM visits GROUP BY user, TUMBLE(ts, INTERVAL '1' HOUR) UNION ALL "
        "SELECT user, SUM(amount) FROM visits GROUP BY user, TUMBLE(ts, INTERVAL '1' HOUR)"
    )
    steps = stream_of(query, "totals")._job._steps
    assert [step.uid for step in steps if step.name.startswith("window")] == ["totals", "totals-2"]


def test_state_is_named_by_what_it_is() -> None:
    """A query that computes something else in the same place does not go on with the other's sums."""
    job = Job("asked")
    stream = job.from_elements(*VISITS, watermarks=TIMES, uid="visits")
    query = "SELECT SUM(amount) AS a, SUM(ts) AS b FROM v GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)"
    job.sql(query, uid="sums", v=stream).collect(uid="result")
    with run(job, visits=VISITS) as test:
        (kept,) = test.state("sums")
        assert kept["value"] == {"SUM(amount)": 15, "SUM(ts)": sum(v.ts for v in VISITS)}


def test_a_query_that_is_refused_leaves_no_steps() -> None:
    job = Job("asked")
    stream = job.from_elements(*VISITS, watermarks=TIMES, uid="visits")
    before = list(job._steps)
    query = "SELECT user FROM v WHERE amount > 1 UNION ALL SELECT nobody FROM v"
    with pytest.raises(GraphError, match="nobody"):
        job.sql(query, v=stream)
    assert job._steps == before


def test_tables_are_streams_of_the_job() -> None:
    job, other = Job("asked"), Job("other")
    stream = other.from_elements(*VISITS, uid="visits")
    with pytest.raises(GraphError, match="belongs to another job"):
        job.sql("SELECT user FROM v", v=stream)
    with pytest.raises(GraphError, match="a table is a stream"):
        job.sql("SELECT user FROM v", v=[1])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="give the query as a text"):
        job.sql(7, v=stream)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="uid= is a text"):
        job.sql("SELECT user FROM uid", uid=stream)  # type: ignore[arg-type]


WITHOUT_SQLGLOT = """
import sys
sys.modules["sqlglot"] = None
import onceflow.runtime.sql.checks
from onceflow import Job
job = Job("asked")
try:
    job.sql("SELECT 1")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_the_library_is_an_extra() -> None:
    """It is named where it is missing, and what the slots compute does without."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SQLGLOT], capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.strip() == "UsageError job.sql() needs sqlglot: pip install 'onceflow[sql]'"
    assert issubclass(UsageError, OnceflowError)
