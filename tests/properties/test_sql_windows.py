"""Window aggregations of SQL, drawn at random: what a job makes of them, over crashes and rescales too, is
what DuckDB makes of the same rows, put into windows there by arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import sliding
from onceflow.runtime.sql import aggregate_calls, grouped_select, selects, window_calls
from onceflow.runtime.testing.mutation import Mutant, mutated
from tests.sql_oracle import FLOATS, NUMBERS, TEXTS, Both, Visit, agree, rows_of_duckdb, rows_of_onceflow

VISITS = st.lists(
    st.builds(
        Visit,
        st.just(0),
        st.none() | st.sampled_from(["ann", "été", ""]),
        st.none() | TEXTS,
        st.none() | NUMBERS,
        st.none() | st.integers(-2, 2),
        st.none() | FLOATS,
        st.none() | st.booleans(),
        st.none(),
        st.integers(-30, 60) | st.sampled_from([0, 9, 10, 19, 20]),
    ),
    max_size=20,
)
AGGREGATES = st.lists(
    st.sampled_from(
        [
            Both.same("COUNT(*)"),
            Both.same("COUNT(a)"),
            Both.same("COUNT(DISTINCT page)"),
            Both.same("COUNT(DISTINCT a) FILTER (WHERE flag)"),
            Both.same("SUM(a)"),
            Both.same("SUM(a + b)"),
            Both.same("SUM(1)"),
            Both.same("SUM(f)"),
            Both.same("AVG(a)"),
            Both.same("AVG(f) FILTER (WHERE f > 0)"),
            Both.same("MIN(a)"),
            Both.same("MAX(page)"),
            Both.same("MIN(f)"),
            Both.same("MAX(seen)"),
            Both.same("COUNT(*) FILTER (WHERE flag)"),
            Both.same("SUM(a) FILTER (WHERE NOT flag AND b <> 0)"),
            Both.same("CASE WHEN COUNT(*) > 2 THEN SUM(b) ELSE -1 END"),
            Both.same("COALESCE(SUM(b), 0) * 2 + COUNT(a)"),
            Both("SUM(a) / NULLIF(SUM(b), 0)", "SUM(a) // NULLIF(SUM(b), 0)"),
        ]
    ),
    min_size=1,
    max_size=4,
)
KEYS = st.lists(
    st.sampled_from([Both.same("user"), Both.same("b"), Both.same("UPPER(user)"), Both.same("b IS NULL")]),
    max_size=2,
    unique=True,
)
CONDITIONS = st.sampled_from(["TRUE", "flag", "a > 0", "b <> 1 OR b IS NULL", "page LIKE '%a%'"]).map(
    Both.same
)
HAVING = st.sampled_from(["TRUE", "COUNT(*) > 1", "SUM(b) >= 0", "MAX(a) IS NOT NULL"])
MS = "INTERVAL '0.{:03d}' SECOND"


def windowed(kind: str, sizes: tuple[int, int, int], keys: list[Both]) -> tuple[str, str, bool]:
    """FROM in both languages: rows with window_start and window_end."""
    small, times, offset = sizes
    size = small * times
    base = "(CAST(floor((ts - {o}) / {s}::DOUBLE) AS BIGINT) * {s} + {o})"
    match kind:
        case "TUMBLE":
            ours = f"TUMBLE(TABLE visits, DESCRIPTOR(ts), {MS.format(size)}, {MS.format(offset % size)})"
            start = base.format(o=offset % size, s=size)
            duck = f"(SELECT *, {start} AS window_start, {start} + {size} AS window_end FROM visits)"
        case "HOP":
            ours = f"HOP(TABLE visits, DESCRIPTOR(ts), {MS.format(small)}, {MS.format(size)})"
            start = f"{base.format(o=0, s=small)} - n * {small}"
            duck = (
                f"(SELECT visits.*, {start} AS window_start, {start} + {size} AS window_end "
                f"FROM visits, range({times}) AS r(n))"
            )
        case "CUMULATE":
            ours = f"CUMULATE(TABLE visits, DESCRIPTOR(ts), {MS.format(small)}, {MS.format(size)})"
            start = base.format(o=0, s=size)
            duck = (
                f"(SELECT visits.*, {start} AS window_start, {start} + (n + 1) * {small} AS window_end "
                f"FROM visits, range({times}) AS r(n) WHERE ts < {start} + (n + 1) * {small})"
            )
        case _:
            named = ", ".join(key.ours for key in keys)
            by = f" PARTITION BY {named}" if keys else ""
            ours = f"SESSION(TABLE visits{by}, DESCRIPTOR(ts), {MS.format(small)})"
            part = ", ".join(key.duck for key in keys) or "1"
            before = f"SELECT *, lag(ts) OVER (PARTITION BY {part} ORDER BY ts) AS before FROM visits"
            is_new = f"CASE WHEN ts - before <= {small} THEN 0 ELSE 1 END"
            running = f"sum({is_new}) OVER (PARTITION BY {part} ORDER BY ts ROWS UNBOUNDED PRECEDING) AS s"
            duck = (
                f"(SELECT *, min(ts) OVER w AS window_start, max(ts) OVER w + {small} AS window_end "
                f"FROM (SELECT *, {running} FROM ({before})) WINDOW w AS (PARTITION BY {part}, s))"
            )
    return f"TABLE({ours})", duck, kind == "SESSION"


def judged(
    kind: str,
    sizes: tuple[int, int, int],
    keys: list[Both],
    aggregates: list[Both],
    condition: Both,
    having: str,
    visits: list[Visit],
    parts: int = 1,
) -> None:
    """Both make the same of the query."""
    if kind == "SESSION":
        keys = [key for key in keys if key.ours in ("user", "b")]
    ours_from, duck_from, _ = windowed(kind, sizes, keys)
    texts = []
    for place, source in enumerate((ours_from, duck_from)):
        names = [key[place] for key in keys]
        made = ", ".join(
            [
                *(f"{name} AS k{n}" for n, name in enumerate(names)),
                "window_start",
                "window_end - 1 AS last",
                *(f"{each[place]} AS c{n}" for n, each in enumerate(aggregates)),
            ]
        )
        group = ", ".join([*names, "window_start", "window_end"])
        texts.append(
            f"SELECT {made} FROM {source} AS w WHERE {condition[place]} GROUP BY {group} HAVING {having}"
        )
    agree(rows_of_onceflow(texts[0], visits, parts), rows_of_duckdb(texts[1], visits))


KINDS = st.sampled_from(["TUMBLE", "HOP", "CUMULATE", "SESSION"])
SIZES = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(0, 9))


@settings(max_examples=60, deadline=None)
@given(KINDS, SIZES, KEYS, AGGREGATES, CONDITIONS, HAVING, VISITS, st.integers(1, 3))
def test_windows(
    kind: str,
    sizes: tuple[int, int, int],
    keys: list[Both],
    aggregates: list[Both],
    condition: Both,
    having: str,
    visits: list[Visit],
    parts: int,
) -> None:
    judged(kind, sizes, keys, aggregates, condition, having, visits, parts)


STOCK = [
    Visit(n, user, None, a, b, None, flag, None, ts)
    for n, (user, a, b, flag, ts) in enumerate(
        [
            ("ann", 5, None, True, 0),
            ("ann", None, None, None, 9),
            (None, 7, 1, True, 3),
            (None, -2, 1, False, 14),
            ("bob", None, None, False, 25),
            ("ann", 1, 1, False, 18),
        ]
    )
]
SUM = Both.same("SUM(a)")
FILTERED = Both.same("SUM(a) FILTER (WHERE flag)")
FLAG = Both.same("flag")


@pytest.mark.parametrize(
    ("mutant", "kind", "aggregate", "condition"),
    [
        (
            Mutant(
                "FILTER is not looked at",
                [
                    (
                        grouped_select,
                        "argument_of",
                        lambda call, s, more: None if call.argument is None else s.typed(call.argument),
                    )
                ],
            ),
            "TUMBLE",
            FILTERED,
            Both.same("TRUE"),
        ),
        (
            Mutant(
                "COUNT counts nulls",
                [(grouped_select, "operator_aggregate", lambda call, name: aggregate_calls.count())],
            ),
            "HOP",
            Both.same("COUNT(a)"),
            Both.same("TRUE"),
        ),
        (
            Mutant(
                "a group of which no row counts has a result",
                [(selects, "_having", lambda select, known, passed: None)],
            ),
            "SESSION",
            SUM,
            FLAG,
        ),
        (
            Mutant(
                "HOP has its slide and its size the other way round",
                [(window_calls, "sliding", lambda size, slide, offset: sliding(size * 2, slide, offset))],
            ),
            "HOP",
            SUM,
            Both.same("TRUE"),
        ),
    ],
    ids=lambda given: given.title if isinstance(given, Mutant) else "",
)
def test_a_mutant_dies(mutant: Mutant, kind: str, aggregate: Both, condition: Both) -> None:
    given = (kind, (10, 2, 0), [Both.same("user")], [aggregate], condition, "TRUE", STOCK)
    judged(*given)
    with mutated(mutant), pytest.raises(AssertionError):
        judged(*given)


@example(1)
@settings(max_examples=10, deadline=None)
@given(st.integers(1, 5))
def test_legacy_windows(hours: int) -> None:
    """TUMBLE, HOP and SESSION in GROUP BY, whose WHERE comes before the windows."""
    for kind, lengths, own in (
        ("TUMBLE", f"{MS.format(hours)}", "TUMBLE"),
        ("HOP", f"{MS.format(hours)}, {MS.format(hours * 3)}", "HOP"),
        ("SESSION", f"{MS.format(hours)}", "SESSION"),
    ):
        call = f"(ts, {lengths})"
        ours = (
            f"SELECT user, {own}_START{call} AS s, {own}_END{call} AS e, SUM(a) AS n FROM visits "
            f"WHERE flag IS NOT NULL GROUP BY user, {own}{call}"
        )
        _, duck, _ = windowed(kind, (hours, 3 if kind == "HOP" else 1, 0), [Both.same("user")])
        rows = "FROM (SELECT * FROM visits WHERE flag IS NOT NULL) AS visits"
        of = duck.replace("FROM visits", rows)
        theirs = f"SELECT user, window_start, window_end, SUM(a) FROM {of} AS w GROUP BY ALL"
        agree(rows_of_onceflow(ours, STOCK), rows_of_duckdb(theirs, STOCK))
