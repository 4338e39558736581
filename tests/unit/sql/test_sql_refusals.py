"""What SQL over streams refuses: each with its place and what to do instead, and before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onceflow import Job, WatermarkStrategy
from onceflow.runtime.errors import GraphError, UsageError
from onceflow.runtime.sql import window_calls
from onceflow.runtime.testing.mutation import Mutant, mutated


@dataclass(frozen=True)
class Visit:
    user: str
    amount: int
    ts: int


def asked(query: str) -> None:
    """The query over `v`, with event time, and `n`, without."""
    job = Job("asked")
    times = WatermarkStrategy.bounded_out_of_orderness("1 d", event_time="ts")
    visits = [
        job.from_elements(Visit("a", 1, 0), watermarks=w, uid=uid) for w, uid in ((times, "v"), (None, "n"))
    ]
    job.sql(query, v=visits[0], n=visits[1])


def of_window(function: str, rest: str = "") -> str:
    return f"SELECT COUNT(*) AS n FROM TABLE({function}) GROUP BY {rest}window_start, window_end"


HOUR = "INTERVAL '1' HOUR"
SESSION = f"SESSION(TABLE v PARTITION BY user, DESCRIPTOR(ts), {HOUR})"
REFUSED = [
    ("SELECT usr FROM v", "SQL, line 1, column 8: there is no column 'usr' (did you mean 'user'?); there"),
    (
        "SELECT user FROM vv",
        "SQL, line 1, column 18: there is no table 'vv' (did you mean 'v'?); there are v,",
    ),
    (
        "SELECT user, COUNT(*) FROM v GROUP BY user",
        "SQL, line 1, column 39: without a window a group is never complete, and its",
    ),
    ("SELECT COUNT(*) FROM v", "SQL, line 1, column 8: without a window a group is never complete, and its"),
    (
        "SELECT user FROM v ORDER BY user",
        "SQL, line 1, column 29: rows of a stream have no end, so ORDER BY can't wait for",
    ),
    (
        "SELECT user FROM v LIMIT 3",
        "SQL, line 1, column 26: LIMIT would keep rows by chance, since a stream has no",
    ),
    (
        "SELECT DISTINCT user FROM v",
        "SQL, line 1, column 8: DISTINCT would have to compare rows of all times: SELECT",
    ),
    (
        "SELECT v.user FROM v JOIN n ON v.user = n.user",
        "SQL, line 1, column 27: a join needs bounds of time, or it would keep all rows for",
    ),
    (
        "SELECT v.user FROM v, n",
        "SQL, line 1, column 23: every row of one table would meet every row of the other:",
    ),
    (
        "SELECT user FROM v UNION SELECT user FROM v",
        "SQL, line 1, column 8: UNION would have to compare all rows of all times: write",
    ),
    (
        "SELECT user FROM v EXCEPT SELECT user FROM v",
        "SQL, line 1, column 8: EXCEPT would have to compare rows of all times: use a",
    ),
    (
        "SELECT user FROM v UNION ALL SELECT amount FROM v",
        "SQL, line 1, column 8: column 'user' of UNION ALL is STRING, and 'amount' in its",
    ),
    (
        "SELECT user FROM v UNION ALL SELECT user, amount FROM v",
        "SQL, line 1, column 8: the parts of UNION ALL have 1 and 2 columns: give both",
    ),
    (
        "SELECT user, amount AS user FROM v",
        "SQL, line 1, column 14: two columns of the result are called 'user': give one",
    ),
    (
        "SELECT user + 1 AS x FROM v",
        "SQL, line 1, column 8: user + 1: + takes numbers, but these are STRING and",
    ),
    (
        "SELECT user = amount AS x FROM v",
        "SQL, line 1, column 8: user = amount: STRING and BIGINT can't be compared: CAST",
    ),
    (
        "SELECT foo(user) AS x FROM v",
        "SQL, line 1, column 8: there is no function FOO (did you mean 'FLOOR'?): see",
    ),
    (
        "SELECT uper(user) AS x FROM v",
        "SQL, line 1, column 8: there is no function UPER (did you mean 'UPPER'?): see",
    ),
    (
        "SELECT NOW() AS x FROM v",
        "SQL, line 1, column 8: NOW gives another value when rows are read again after a",
    ),
    (
        "SELECT CURRENT_TIMESTAMP AS x FROM v",
        "SQL, line 1, column 8: CURRENT_TIMESTAMP() gives another value when rows are",
    ),
    (
        "SELECT SUM(amount) OVER (PARTITION BY user) AS x FROM v",
        "SQL, line 1, column 8: SUM(amount) OVER (PARTITION BY user): OVER is not",
    ),
    (
        "SELECT user FROM v WHERE amount IN (SELECT amount FROM v)",
        "SQL, line 1, column 26: IN takes a list, x IN (1, 2); for a query, join streams",
    ),
    (
        "SELECT (SELECT 1) AS x FROM v",
        "SQL, line 1, column 16: a query inside an expression is not supported: write it",
    ),
    (
        "SELECT user FROM v WHERE EXISTS (SELECT 1 FROM v)",
        "SQL, line 1, column 41: a query inside an expression is not supported: write it",
    ),
    (
        "SELECT user FROM v WHERE amount",
        "SQL, line 1, column 26: WHERE needs true or false, but amount is BIGINT: compare",
    ),
    (
        "SELECT CASE WHEN amount > 0 THEN 1 ELSE 'x' END AS x FROM v",
        "SQL, line 1, column 18: CASE WHEN amount > 0 THEN 1 ELSE 'x' END gives BIGINT in",
    ),
    (
        "SELECT SUM(amount) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(amount), INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end",
        "SQL, line 1, column 58: amount is not the event time of these rows, which is",
    ),
    (
        "SELECT SUM(amount) FROM TABLE(TUMBLE(TABLE n, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP "
        "BY window_start, window_end",
        "SQL, line 1, column 58: ts is not known to be the event time of these rows:",
    ),
    (
        "SELECT SUM(amount) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' MONTH)) "
        "GROUP BY window_start, window_end",
        "SQL, line 1, column 72: INTERVAL '1' MONTH has no fixed length that is known",
    ),
    (
        "SELECT SUM(amount) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP "
        "BY window_start",
        "SQL, line 1, column 92: GROUP BY needs both bounds of the window: add",
    ),
    (
        "SELECT user, SUM(amount) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
        "GROUP BY window_start, window_end",
        "SQL, line 1, column 8: user has many values in a group: add it to GROUP BY, or",
    ),
    (
        "SELECT * FROM TABLE(HOP(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
        "SQL, line 1, column 8: rows of HOP have to be grouped by their windows: GROUP BY",
    ),
    (
        "SELECT user FROM TABLE(HOP(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))",
        "SQL, line 1, column 8: rows of HOP have to be grouped by their windows: GROUP BY",
    ),
    (
        "SELECT COUNT(*) FROM TABLE(HOP(TABLE v, DESCRIPTOR(ts), INTERVAL '2' HOUR, INTERVAL '1' "
        "HOUR)) GROUP BY window_start, window_end",
        "SQL, line 1, column 28: HOP(TABLE v, DESCRIPTOR(ts), INTERVAL '2' HOUR, INTERVAL",
    ),
    (
        "SELECT COUNT(*) FROM TABLE(HOP(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' "
        "HOUR)) WHERE window_start > 5 GROUP BY window_start, window_end",
        "SQL, line 1, column 102: window_start is known only when rows are grouped by it:",
    ),
    (
        "SELECT COUNT(*) FROM TABLE(SESSION(TABLE v PARTITION BY user, DESCRIPTOR(ts), INTERVAL "
        "'1' HOUR)) GROUP BY window_start, window_end",
        "SQL, line 1, column 108: sessions are apart by user, as PARTITION BY says: GROUP",
    ),
    (
        "SELECT COUNT(*) FROM TABLE(SESSION(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP "
        "BY user, window_start, window_end",
        "SQL, line 1, column 90: sessions are apart by nothing, as PARTITION BY says:",
    ),
    (
        "SELECT user AS amount, amount AS user, window_start, window_end, ts FROM "
        "TABLE(SESSION(TABLE v PARTITION BY user, DESCRIPTOR(ts), INTERVAL '1' HOUR)) WHERE user "
        "= 'a'",
        "SQL, line 1, column 8: WHERE of rows in sessions has to stand beside their GROUP",
    ),
    (
        "SELECT COUNT(*) FROM (SELECT amount AS user, window_start, window_end, ts FROM "
        "TABLE(SESSION(TABLE v PARTITION BY user, DESCRIPTOR(ts), INTERVAL '1' HOUR))) GROUP BY "
        "user, window_start, window_end",
        "SQL, line 1, column 30: sessions are apart by user, as PARTITION BY says: add it",
    ),
    (
        "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE v, INTERVAL '1' HOUR)) GROUP BY window_start, window_end",
        "SQL, line 1, column 28: TUMBLE lacks SIZE: TUMBLE(TABLE visits, DESCRIPTOR(ts),",
    ),
    (
        "SELECT COUNT(*) FROM TABLE(TUMBEL(TABLE v, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY "
        "window_start, window_end",
        "SQL, line 1, column 28: there is no table function TUMBEL: use TUMBLE, HOP,",
    ),
    (
        "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) AS s FROM v",
        "SQL, line 1, column 8: TUMBLE_START has to be called in GROUP BY as well: GROUP",
    ),
    (
        "SELECT TUMBLE_START(ts, INTERVAL '2' HOUR) AS s, COUNT(*) AS n FROM v GROUP BY "
        "TUMBLE(ts, INTERVAL '1' HOUR)",
        "SQL, line 1, column 8: TUMBLE_START has to be called in GROUP BY as well: GROUP",
    ),
    (
        "SELECT SUM(SUM(amount)) AS s FROM v GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        "SQL, line 1, column 12: SUM is an aggregate, which has no place here: it may",
    ),
    (
        "SELECT SUM(user) AS s FROM v GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        "SQL, line 1, column 8: SUM(user): there is no SUM of STRING: CAST the",
    ),
    (
        "SELECT SUM(DISTINCT amount) AS s FROM v GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        "SQL, line 1, column 8: SUM(DISTINCT amount): there is no SUM of different",
    ),
    (
        "SELECT amount FROM v WHERE COUNT(*) > 1",
        "SQL, line 1, column 28: COUNT is an aggregate, which has no place here: it may",
    ),
    ("INSERT INTO x SELECT 1", "SQL: INSERT INTO x SELECT 1 is no query: job.sql(...) takes"),
    ("SELECT 1 AS x", "SQL, line 1, column 8: a query needs FROM: which table do its rows come"),
    ("SELECT user FROM v; SELECT user FROM v", "SQL: 2 statements were given: give job.sql(...) one"),
    (
        "SELECT user FROM v WHERE",
        "SQL, line 1, column 20: the query is not understood at 'WHERE' (something is",
    ),
    ("SELECT 'a FROM v", "SQL: the text can't be read: Error tokenizing 'SELECT 'a FROM"),
    (
        "SELECT CAST(user AS VARCHAR(3)) AS x FROM v",
        "SQL, line 1, column 13: VARCHAR(3) would cut values off: use STRING, and LEFT(x,",
    ),
    (
        "SELECT CAST(user AS FOO) AS x FROM v",
        "SQL, line 1, column 13: there is no type FOO: use BOOLEAN, TINYINT, SMALLINT,",
    ),
    (
        "SELECT CAST(ts AS TIMESTAMP) AS x FROM v",
        "SQL, line 1, column 13: CAST(ts AS TIMESTAMP): BIGINT has no TIMESTAMP: use",
    ),
    (
        "SELECT 99999999999999999999 AS x FROM v",
        "SQL, line 1, column 8: 99999999999999999999 does not fit BIGINT: write it with a",
    ),
    ("SELECT NULL AS x FROM v", "SQL, line 1, column 8: NULL AS x has no type: CAST(NULL AS STRING), for"),
    (
        "SELECT user LIKE amount AS x FROM v",
        "SQL, line 1, column 8: user LIKE amount: LIKE takes a text and a pattern in",
    ),
    (
        "SELECT SUBSTRING(user) AS x FROM v",
        "SQL, line 1, column 18: SUBSTRING(user): where does it begin? SUBSTRING(text FROM",
    ),
    (
        "SELECT EXTRACT(CENTURY FROM ts) AS x FROM v",
        "SQL, line 1, column 16: EXTRACT(CENTURY FROM ts): there is no CENTURY of a time",
    ),
    (
        "SELECT EXTRACT(YEAR FROM ts) AS x FROM v",
        "SQL, line 1, column 16: EXTRACT(YEAR FROM ts): a time is wanted, but ts is",
    ),
    (
        "SELECT user FROM v TABLESAMPLE (10 PERCENT)",
        "SQL, line 1, column 33: SAMPLE is not supported in a query over streams: leave it",
    ),
    (
        "SELECT user FROM v AS OF TIMESTAMP '2020-01-01'",
        "SQL, line 1, column 26: the query is not understood at 'TIMESTAMP' (invalid",
    ),
    (
        "SELECT user FROM v GROUP BY ROLLUP (user)",
        "SQL, line 1, column 37: without a window a group is never complete, and its",
    ),
    (
        "WITH RECURSIVE a AS (SELECT 1 AS x FROM v) SELECT x FROM a",
        "SQL, line 1, column 16: WITH RECURSIVE is not supported: rows that go round are",
    ),
    (
        "WITH a AS (SELECT user FROM v) SELECT usr FROM a",
        "SQL, line 1, column 39: there is no column 'usr' (did you mean 'user'?); there",
    ),
    (
        "SELECT * EXCEPT (user) FROM v",
        "SQL, line 1, column 8: * EXCEPT (user): only * alone is supported: name the",
    ),
    ("SELECT x.* FROM v", "SQL, line 1, column 8: there is no table 'x'; there is"),
    ("SELECT user.foo AS y FROM v", "SQL, line 1, column 8: user.foo: there is no field 'foo': it is"),
    (
        "SELECT amount BETWEEN SYMMETRIC 1 AND 2 AS y FROM v",
        "SQL, line 1, column 8: (amount BETWEEN 1 AND 2 OR amount BETWEEN 2 AND 1):",
    ),
    (
        "SELECT user ILIKE 'a' AS y FROM v",
        "SQL, line 1, column 8: user ILIKE 'a' is not supported in an expression: see",
    ),
    (
        "SELECT user SIMILAR TO 'a' AS y FROM v",
        "SQL, line 1, column 8: user SIMILAR TO 'a' is not supported in an expression:",
    ),
    (
        "SELECT COUNT(user, amount) AS n FROM v GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        "SQL, line 1, column 8: COUNT(user, amount): COUNT takes one argument:",
    ),
    (
        "SELECT DATE_FORMAT(TO_TIMESTAMP_LTZ(ts, 3), 'EEE') AS n FROM v",
        "SQL, line 1, column 8: 'EEE': 'EEE' is not supported: use yyyy, yy, MM, dd, HH,",
    ),
    ("SELECT a.b FROM v AS a", "SQL, line 1, column 8: there is no column 'b'; there are user, amount,"),
    (
        "SELECT user FROM v FOR UPDATE",
        "SQL, line 1, column 24: LOCKS is not supported in a query over streams: leave it",
    ),
    (
        "SELECT user FROM v CROSS JOIN UNNEST(x) AS t",
        "SQL, line 1, column 38: CROSS JOIN is not supported: write JOIN, LEFT JOIN, RIGHT",
    ),
    (
        "SELECT ROW_NUMBER() OVER (ORDER BY ts) AS r FROM v",
        "SQL, line 1, column 8: ROW_NUMBER() OVER (ORDER BY ts): OVER is not supported:",
    ),
    ("SELECT user FROM v QUALIFY 1 = 1", "SQL, line 1, column 28: QUALIFY is not supported: use HAVING, or"),
    ("VALUES (1)", "SQL: VALUES (1) is no query: job.sql(...) takes SELECT; rows"),
    (
        "SELECT COUNT(*) FILTER (WHERE amount) AS n FROM v GROUP BY TUMBLE(ts, INTERVAL '1' HOUR)",
        "SQL, line 1, column 31: FILTER needs true or false, but amount is BIGINT: compare",
    ),
    (
        "SELECT MATCH_RECOGNIZE FROM v",
        "SQL, line 1, column 8: there is no column 'MATCH_RECOGNIZE'; there are user,",
    ),
    (
        "SELECT * FROM v MATCH_RECOGNIZE (PARTITION BY user ORDER BY ts MEASURES A.ts AS x "
        "PATTERN (A) DEFINE A AS TRUE)",
        "SQL, line 1, column 52: the query is not understood at 'ORDER BY' (expecting )):",
    ),
    ("SELECT /*+ hint(x) */ user FROM v", "SQL, line 1, column 2: hints are not supported: leave them"),
    (
        "SELECT TOP 3 user FROM v",
        "SQL, line 1, column 12: the query is not understood at '3' (invalid expression /",
    ),
    (
        "SELECT ARRAY[1,2] AS x FROM v",
        "SQL, line 1, column 14: ARRAY(1, 2) is not supported in an expression: see",
    ),
    (
        "SELECT amount & 1 AS x FROM v",
        "SQL, line 1, column 8: amount & 1 is not supported in an expression: see",
    ),
    (
        "SELECT user FROM db.v",
        "SQL, line 1, column 18: DB is not supported in a query over streams: leave it",
    ),
    (
        "SELECT user FROM v PIVOT (SUM(amount) FOR user IN ('a'))",
        "SQL, line 1, column 27: PIVOTS is not supported in a query over streams: leave it",
    ),
    (
        "SELECT user FROM v AS x (amount, user)",
        "SQL, line 1, column 18: x (...) names columns by their place: name them in a SELECT",
    ),
    (
        "SELECT user FROM (SELECT user, amount FROM v) AS x (amount, user)",
        "SQL, line 1, column 26: x (...) names columns by their place: name them in a SELECT",
    ),
    (
        of_window(f"TUMBLE(TABLE db.v, DESCRIPTOR(ts), {HOUR})"),
        "SQL, line 1, column 46: DB is not supported in a query over streams: leave it",
    ),
    (
        "WITH x AS (SELECT user FROM v), x AS (SELECT amount FROM v) SELECT * FROM x",
        "SQL, line 1, column 33: WITH has two queries called x: give one",
    ),
    (
        f"SELECT {'(' * 400}ts{')' * 400} AS x FROM v",
        "SQL: the query is nested too deeply",
    ),
    (
        of_window("TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '106751991167' DAY)"),
        "SQL, line 1, column 74: INTERVAL '106751991167' DAY is longer than all times",
    ),
    (
        "SELECT REPLACE('a', user, 'b') AS x FROM v",
        "SQL, line 1, column 8: REPLACE('a', user, 'b'): what is replaced has to be a text in quotes",
    ),
]


@pytest.mark.parametrize(("query", "said"), REFUSED)
def test_refused(query: str, said: str) -> None:
    with pytest.raises(GraphError) as raised:
        asked(query)
    sentence = str(raised.value)
    assert sentence.startswith(said)
    # It says what to do.
    assert ":" in sentence.removeprefix(said.partition(": ")[0] + ": ") or ";" in sentence


def test_a_place_in_several_lines() -> None:
    with pytest.raises(GraphError, match=r"^SQL, line 3, column 7: there is no column 'usr'"):
        asked("SELECT user\nFROM v\nWHERE usr = 'a'")


@pytest.mark.parametrize(
    ("mutant", "query"),
    [
        (
            Mutant(
                "any column is the event time", [(window_calls, "check_event_time", lambda node, names: None)]
            ),
            of_window(f"TUMBLE(TABLE v, DESCRIPTOR(amount), {HOUR})"),
        ),
        (
            Mutant("sessions by other keys", [(window_calls, "_partition", lambda call, table, names: None)]),
            of_window(SESSION, "amount, "),
        ),
        (
            Mutant("rows of HOP are rows", [(window_calls.Windowing, "multiplies", False)]),
            f"SELECT user FROM TABLE(HOP(TABLE v, DESCRIPTOR(ts), {HOUR}, INTERVAL '2' HOUR))",
        ),
    ],
    ids=lambda given: given.title if isinstance(given, Mutant) else "",
)
def test_a_mutant_dies(mutant: Mutant, query: str) -> None:
    """What would change results in silence is refused, and would go through without the rule."""
    with pytest.raises(UsageError):
        asked(query)
    with mutated(mutant):
        asked(query)
