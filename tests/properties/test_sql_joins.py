"""Joins of SQL, drawn at random: what a job makes of rows that come out of order, over restarts at another
parallelism, is what DuckDB makes of the same tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError
from onceflow.runtime.operators.joins import interval_join
from onceflow.runtime.sql import join_sides, join_steps, joined_tables, time_bounds
from onceflow.runtime.testing.mutation import Mutant, mutated
from tests.sql_join_oracle import STOCK, TABLES, Tables
from tests.sql_oracle import agree

real_conditions, real_window, real_side = (
    join_steps._conditions,
    join_steps._window_column,
    join_sides._side,
)
real_filters = joined_tables.take_filters


HOW = st.sampled_from(["JOIN", "INNER JOIN", "LEFT JOIN", "RIGHT OUTER JOIN", "FULL JOIN"])
KEYS = st.sampled_from(
    [
        "o.user = p.user",
        "p.user = o.user AND o.part = p.part",
        "UPPER(o.user) = UPPER(p.user)",
        "o.user = p.user AND o.part + 1 = p.m",
        "(id = ref AND o.user = p.user)",
        "o.user = p.user AND o.user = UPPER(p.user)",
    ]
)
BOUNDS = st.sampled_from(
    [
        "p.ts BETWEEN o.ts - {a} AND o.ts + {b}",
        "p.ts >= o.ts - {a} AND p.ts <= o.ts + {b}",
        "p.ts > o.ts - {a} AND o.ts + {b} > p.ts",
        "o.ts BETWEEN p.ts - {b} AND p.ts + {a}",
        "p.ts - o.ts <= {b} AND {a} + p.ts >= o.ts",
        "p.ts BETWEEN o.ts AND o.ts + {b}",
        "p.ts + {a} > o.ts AND p.ts <= o.ts",
        "p.ts = o.ts + {b}",
    ]
)
REST = st.sampled_from(
    [
        "TRUE",
        "n <= m",
        "n > 0",
        "m IS NOT NULL OR o.part = 1",
        "m <> 0 AND CASE WHEN m = 0 THEN n ELSE n % m END = 0",
    ]
)
LENGTHS = st.tuples(st.integers(1, 12), st.integers(1, 12))
COLUMNS = "id, o.user, o.part, n, o.ts, ref, p.user AS theirs, p.part AS its_part, m, p.ts AS paid"


def judged(query: str, tables: Tables, parts: int = 1) -> None:
    """Both say the same of the query."""
    agree(tables.onceflow(query, parts), tables.duckdb(query))


def in_time(how: str, keys: str, bounds: str, rest: str, ms: tuple[int, int], in_where: bool) -> str:
    said = bounds.format(a=ms[0], b=ms[1])
    if in_where and how in ("JOIN", "INNER JOIN"):
        return f"SELECT {COLUMNS} FROM o {how} p ON {keys} WHERE ({rest}) AND {said}"
    return f"SELECT {COLUMNS} FROM o {how} p ON {keys} AND {said} AND ({rest})"


@settings(max_examples=30, deadline=None)
@given(HOW, KEYS, BOUNDS, REST, LENGTHS, st.booleans(), TABLES, st.integers(1, 3))
def test_interval_joins(
    how: str,
    keys: str,
    bounds: str,
    rest: str,
    ms: tuple[int, int],
    in_where: bool,
    tables: Tables,
    parts: int,
) -> None:
    judged(in_time(how, keys, bounds, rest, ms, in_where), tables, parts)


@settings(max_examples=10, deadline=None)
@given(HOW, st.sampled_from(["user", "user, part"]), LENGTHS, TABLES)
def test_using(how: str, names: str, ms: tuple[int, int], tables: Tables) -> None:
    """A column of USING is there once, with the value of whichever row there is."""
    first, second = ms
    if "RIGHT" not in how and "FULL" not in how and "LEFT" not in how:
        rest = f"USING ({names}) WHERE p.ts BETWEEN o.ts - {first} AND o.ts + {second}"
        judged(f"SELECT user, o.part, id, ref FROM o {how} p {rest}", tables)
    # Outer joins with bounds can't be said by USING alone: equal times are bounds, too.
    judged(
        f"SELECT {names}, ts, id, ref, o.ts AS mine, p.user AS theirs FROM o {how} p USING ({names}, ts)",
        tables,
    )


def windowed(function: str, sizes: tuple[int, int]) -> tuple[list[str], list[str]]:
    """Both tables in windows, in both languages."""
    small, times = sizes
    size = small * times
    ours, duck = [], []
    for table in ("o", "p"):
        base = f"(CAST(floor(ts / {size if function != 'HOP' else small}::DOUBLE) AS BIGINT) * "
        if function == "TUMBLE":
            lengths = [size]
            start, n, where = f"{base}{size})", 1, "TRUE"
            end = f"{start} + {size}"
        elif function == "HOP":
            lengths = [small, size]
            start, n, where = f"{base}{small}) - k * {small}", times, "TRUE"
            end = f"{start} + {size}"
        else:
            lengths = [small, size]
            start, n = f"{base}{size})", times
            end = f"{start} + (k + 1) * {small}"
            where = f"ts < {end}"
        said = ", ".join(f"INTERVAL '0.{each:03d}' SECOND" for each in lengths)
        ours.append(f"(SELECT * FROM TABLE({function}(TABLE {table}, DESCRIPTOR(ts), {said})))")
        duck.append(
            f"(SELECT {table}.*, {start} AS window_start, {end} AS window_end, {end} - 1 AS window_time "
            f"FROM {table}, range({n}) AS r(k) WHERE {where})"
        )
    return ours, duck


@settings(max_examples=20, deadline=None)
@given(
    HOW,
    st.sampled_from(["TUMBLE", "HOP", "CUMULATE"]),
    st.tuples(st.integers(1, 12), st.integers(1, 3)),
    KEYS,
    st.sampled_from(["TRUE", "n <= m", "p.ts > o.ts"]),
    TABLES,
    st.integers(1, 3),
)
def test_window_joins(
    how: str,
    function: str,
    sizes: tuple[int, int],
    keys: str,
    rest: str,
    tables: Tables,
    parts: int,
) -> None:
    texts = [
        f"SELECT {COLUMNS}, o.window_start, p.window_end, o.window_time, p.window_start AS theirs_too "
        f"FROM {left} o {how} {right} p ON {keys} AND o.window_start = p.window_start "
        f"AND p.window_end = o.window_end AND {rest}"
        for left, right in windowed(function, sizes)
    ]
    agree(tables.onceflow(texts[0], parts), tables.duckdb(texts[1]))


@settings(max_examples=20, deadline=None)
@given(st.booleans(), KEYS, st.sampled_from(["TRUE", "n <= m", "m > 0"]), TABLES, st.integers(1, 3))
def test_temporal_joins(is_outer: bool, keys: str, rest: str, tables: Tables, parts: int) -> None:
    """The latest version of the key at or before the row; versions of one time would leave a choice."""
    seen: dict[int, object] = {}
    versions = [row for row in tables.payments if seen.setdefault(row.ts, row) is row]
    tables = replace(tables, payments=versions)
    how = "LEFT JOIN" if is_outer else "JOIN"
    ours = f"SELECT {COLUMNS} FROM o {how} p FOR SYSTEM_TIME AS OF o.ts ON {keys} AND {rest}"
    latest = f"SELECT max(v.ts) FROM p AS v WHERE v.ts <= o.ts AND {keys.replace('p.', 'v.')}"
    latest = latest.replace("id = ref", "id = v.ref").replace("v.v.", "v.")
    theirs = f"SELECT {COLUMNS} FROM o {how} p ON {keys} AND {rest} AND p.ts = ({latest})"
    agree(tables.onceflow(ours, parts), tables.duckdb(theirs))


BETWEEN = "p.ts BETWEEN o.ts - {a} AND o.ts + {b}"
IN_TIME = in_time("FULL JOIN", "o.user = p.user", BETWEEN, "n <= m", (10, 7), False)
STRICT = in_time("JOIN", "o.user = p.user", "p.ts > o.ts - {a} AND p.ts < o.ts + {b}", "TRUE", (10, 3), False)
WINDOWS = (
    f"SELECT {COLUMNS}, o.window_start, p.window_end, o.window_time, p.window_start AS theirs_too "
    "FROM {} o FULL JOIN {} p ON o.user = p.user AND o.window_start = p.window_start "
    "AND p.window_end = o.window_end"
)
IN_WINDOWS, THEIRS = (WINDOWS.format(*tables) for tables in windowed("TUMBLE", (10, 1)))
MUTANTS = [
    (
        Mutant(
            "nulls as keys are equal",
            [(interval_join, "null_keys", lambda batch, keys: None)],
        ),
        IN_TIME,
        IN_TIME,
    ),
    (
        Mutant("open bounds are closed ones", [(time_bounds, "_nearer", lambda ms, by: ms)]),
        STRICT,
        STRICT,
    ),
    (
        Mutant(
            "what is compared the other way round is taken as it stands",
            [(time_bounds, "_FLIPPED", {kind: kind for kind in time_bounds._FLIPPED})],
        ),
        STRICT.replace("p.ts < o.ts + 3", "o.ts + 3 > p.ts"),
        STRICT,
    ),
    (
        Mutant(
            "further conditions of an outer join are a filter behind it",
            [
                (
                    join_steps,
                    "_conditions",
                    lambda join, columns, rest: (
                        None,
                        real_conditions(replace(join, how="inner"), columns, rest)[1],
                    ),
                )
            ],
        ),
        IN_TIME,
        IN_TIME,
    ),
    (
        Mutant("a condition of FULL JOIN comes before it", [(joined_tables, "PADDED", {"full": ()})]),
        IN_TIME.replace("n <= m", "n > 1"),
        IN_TIME.replace("n <= m", "n > 1"),
    ),
    (
        Mutant(
            "versions for which ON is not true are no versions",
            [(joined_tables, "take_filters", lambda *given: real_filters(*given[:4], {0, 1}))],
        ),
        "SELECT id, m FROM o JOIN p FOR SYSTEM_TIME AS OF o.ts ON o.user = p.user AND m < 5",
        "SELECT 2 AS id, 1 AS m WHERE FALSE UNION ALL SELECT 1, 0",
    ),
    (
        Mutant(
            "a key column has the value of whichever row there is",
            [(join_sides, "_side", lambda relation, names, can_lack: real_side(relation, names, False))],
        ),
        IN_TIME,
        IN_TIME,
    ),
    (
        Mutant(
            "the windows of a row that is not there are those of the other",
            [
                (
                    join_steps,
                    "_window_column",
                    lambda role, dtype, mark, windowing: real_window(role, dtype, None, windowing),
                )
            ],
        ),
        IN_WINDOWS,
        THEIRS,
    ),
]


@pytest.mark.parametrize(("mutant", "ours", "theirs"), MUTANTS, ids=lambda each: getattr(each, "title", ""))
def test_a_mutant_dies(mutant: Mutant, ours: str, theirs: str) -> None:
    agree(STOCK.onceflow(ours), STOCK.duckdb(theirs))
    with mutated(mutant), pytest.raises((AssertionError, GraphError)):
        agree(STOCK.onceflow(ours), STOCK.duckdb(theirs))
