"""Expressions of SQL, drawn at random: what a job makes of them is what DuckDB makes of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from onceflow.runtime.sql import comparing, grammar, scalars
from onceflow.runtime.sql.sql_types import Typed
from onceflow.runtime.testing.mutation import Mutant, mutated
from tests.sql_oracle import (
    FLOATS,
    NUMBERS,
    TEXTS,
    Both,
    Visit,
    agree,
    put,
    rows_of_duckdb,
    rows_of_onceflow,
)

TIMES = st.datetimes(dt.datetime(1969, 1, 1), dt.datetime(2031, 1, 1)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=dt.UTC)
)
VISITS = st.lists(
    st.builds(
        Visit,
        st.just(0),
        st.none() | TEXTS,
        st.none() | TEXTS,
        st.none() | NUMBERS,
        st.none() | NUMBERS,
        st.none() | FLOATS,
        st.none() | st.booleans(),
        st.none() | TIMES,
        st.integers(-(10**6), 10**6),
    ),
    min_size=1,
    max_size=8,
).map(lambda rows: [Visit(**{**vars(row), "id": place}) for place, row in enumerate(rows)])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def leaves(column_names: list[str], literals: st.SearchStrategy[str]) -> st.SearchStrategy[Both]:
    return st.sampled_from(column_names).map(Both.same) | literals.map(Both.same)


def bools(depth: int) -> st.SearchStrategy[Both]:
    plain = leaves(["flag"], st.sampled_from(["TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"]))
    if depth == 0:
        return plain
    inner, numbers, texts, moments = bools(depth - 1), ints(depth - 1), strings(depth - 1), times(depth - 1)
    compare = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
    of_one_type = (
        st.tuples(numbers, numbers)
        | st.tuples(texts, texts)
        | st.tuples(moments, moments)
        | st.tuples(numbers, floats(depth - 1))
    )
    return st.one_of(
        plain,
        st.builds(lambda pair, op: put(f"({{}} {op} {{}})", *pair), of_one_type, compare),
        st.builds(
            lambda a, b, op: put(f"({{}} {op} {{}})", a, b), inner, inner, st.sampled_from(["AND", "OR"])
        ),
        st.builds(lambda a: put("(NOT {})", a), inner),
        st.builds(
            lambda a, what: put(f"({{}} {what})", a),
            inner,
            st.sampled_from(["IS TRUE", "IS NOT TRUE", "IS FALSE", "IS NULL", "IS NOT NULL"]),
        ),
        st.builds(lambda a, b, c: put("({} BETWEEN {} AND {})", a, b, c), numbers, numbers, numbers),
        st.builds(lambda a, b, c: put("({} NOT IN ({}, {}, NULL))", a, b, c), numbers, numbers, numbers),
        st.builds(lambda a, b, c: put("({} IN ({}, {}))", a, b, c), texts, texts, texts),
        st.builds(
            lambda a, no, pattern: put(f"({{}} {no}LIKE {quoted(pattern)})", a),
            texts,
            st.sampled_from(["", "NOT "]),
            st.sampled_from(["a%", "%b", "%", "_", "a_b%", "%é%", "日__", ".*", "(%", "it's"]),
        ),
        st.builds(
            lambda a, no: put(f"({{}} {no}LIKE 'A\\_b\\%%' ESCAPE '\\')", a),
            texts,
            st.sampled_from(["", "NOT "]),
        ),
        st.builds(lambda a, b: put("STARTSWITH({}, {})", a, b, duck="starts_with({}, {})"), texts, texts),
    )


def ints(depth: int) -> st.SearchStrategy[Both]:
    plain = leaves(["a", "b"], NUMBERS.map(str))
    if depth == 0:
        return plain
    inner, texts, moments = ints(depth - 1), strings(depth - 1), times(depth - 1)
    # Numbers are made small before they are multiplied: what does not fit is another test's.
    small = inner.map(lambda x: put("({} % 1000)", x))
    return st.one_of(
        plain,
        st.builds(lambda a, b: put("({} + {})", a, b), small, small),
        st.builds(lambda a, b: put("({} - {})", a, b), small, small),
        st.builds(lambda a, b: put("({} * {})", a, b), small, small),
        st.builds(lambda a, b: put("({} / NULLIF({}, 0))", a, b, duck="({} // NULLIF({}, 0))"), inner, inner),
        st.builds(
            lambda a, b: put("MOD({}, NULLIF({}, 0))", a, b, duck="({} % NULLIF({}, 0))"), inner, inner
        ),
        st.builds(lambda a: put("(- {})", a), inner),
        st.builds(lambda a: put("ABS({})", a), inner),
        st.builds(lambda a: put("SIGN({})", a), inner),
        st.builds(lambda a: put("CHAR_LENGTH({})", a, duck="length({})"), texts),
        st.builds(lambda a, b: put("POSITION({} IN {})", a, b), texts, texts),
        st.builds(
            lambda a: put("TRY_CAST({} AS BIGINT)", a), st.sampled_from([Both.same("user"), Both.same("'7'")])
        ),
        st.builds(lambda a: put("CAST({} AS BIGINT)", a, duck="CAST(trunc({}) AS BIGINT)"), floats(0)),
        st.builds(
            lambda a, unit: put(f"EXTRACT({unit} FROM {{}})", a),
            moments,
            st.sampled_from(["YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DOY", "HOUR", "MINUTE", "ISODOW"]),
        ),
        st.builds(lambda a: put("EXTRACT(DOW FROM {})", a, duck="(EXTRACT(DOW FROM {}) + 1)"), moments),
        st.builds(
            lambda a: put("EXTRACT(EPOCH FROM {})", a, duck="CAST(floor(epoch({})) AS BIGINT)"), moments
        ),
        chosen(bools(depth - 1), inner),
    )


def floats(depth: int) -> st.SearchStrategy[Both]:
    plain = leaves(["f"], st.sampled_from(["1.5", "-0.25", "CAST(NULL AS DOUBLE)"]))
    if depth == 0:
        return plain
    inner = floats(depth - 1)
    return st.one_of(
        plain,
        st.builds(lambda a, b, op: put(f"({{}} {op} {{}})", a, b), inner, inner, st.sampled_from("+-*")),
        st.builds(lambda a, b: put("({} / NULLIF({}, 0))", a, b), inner, inner),
        st.builds(lambda a, b: put("({} + {})", a, b), inner, ints(0)),
        st.builds(lambda a: put("FLOOR({})", a), inner),
        st.builds(lambda a: put("CEIL({})", a), inner),
        st.builds(lambda a: put("ROUND({})", a), inner),
        st.builds(lambda a: put("CAST({} AS DOUBLE)", a), ints(depth - 1)),
        st.builds(lambda a: put("SQRT(ABS({}))", a), inner),
        chosen(bools(depth - 1), inner),
    )


def strings(depth: int) -> st.SearchStrategy[Both]:
    plain = leaves(["user", "page"], TEXTS.map(quoted))
    if depth == 0:
        return plain
    inner = strings(depth - 1)
    few = st.integers(0, 4)
    return st.one_of(
        plain,
        st.builds(lambda a, b: put("({} || {})", a, b), inner, inner),
        st.builds(lambda a, b: put("CONCAT({}, {})", a, b, duck="({} || {})"), inner, inner),
        st.builds(
            lambda a, f: put(f"{f}({{}})", a), inner, st.sampled_from(["UPPER", "LOWER", "TRIM", "REVERSE"])
        ),
        st.builds(lambda a: put("TRIM(BOTH 'ab' FROM {})", a, duck="trim({}, 'ab')"), inner),
        st.builds(lambda a, n, m: put(f"SUBSTRING({{}} FROM {n + 1} FOR {m})", a), inner, few, few),
        st.builds(lambda a, n: put(f"LEFT({{}}, {n})", a), inner, few),
        st.builds(lambda a, n: put(f"RIGHT({{}}, {n})", a), inner, few),
        st.builds(lambda a: put("REPLACE({}, 'a', 'xy')", a), inner),
        st.builds(lambda a: put("CAST({} AS STRING)", a, duck="CAST({} AS VARCHAR)"), ints(depth - 1)),
        chosen(bools(depth - 1), inner),
    )


def times(depth: int) -> st.SearchStrategy[Both]:
    plain = st.just(Both.same("seen"))
    if depth == 0:
        return plain
    inner = times(depth - 1)
    units = st.sampled_from(["SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR"])
    return st.one_of(
        plain,
        st.builds(
            lambda a, unit: put(
                f"FLOOR({{}} TO {unit})", a, duck=f"CAST(date_trunc('{unit}', {{}}) AS TIMESTAMP)"
            ),
            inner,
            units,
        ),
        st.builds(
            lambda a, op, n, unit: put(f"({{}} {op} INTERVAL '{n}' {unit})", a),
            inner,
            st.sampled_from("+-"),
            st.integers(0, 90),
            st.sampled_from(["SECOND", "HOUR", "DAY"]),
        ),
        chosen(bools(depth - 1), inner),
    )


def chosen(conditions: st.SearchStrategy[Both], values: st.SearchStrategy[Both]) -> st.SearchStrategy[Both]:
    """Values of one type, of which one is chosen."""
    return st.one_of(
        st.builds(
            lambda c, a, b: put("CASE WHEN {} THEN {} ELSE {} END", c, a, b), conditions, values, values
        ),
        st.builds(
            lambda c, d, a, b: put("CASE WHEN {} THEN {} WHEN {} THEN {} END", c, a, d, b),
            conditions,
            conditions,
            values,
            values,
        ),
        st.builds(lambda a, b, c: put("CASE {} WHEN {} THEN {} END", a, b, c), values, values, values),
        st.builds(lambda a, b: put("COALESCE({}, {})", a, b), values, values),
        st.builds(lambda a, b: put("NULLIF({}, {})", a, b), values, values),
    )


EXPRESSIONS = st.lists(bools(2) | ints(2) | floats(2) | strings(2) | times(2), min_size=1, max_size=4)


def judged(expressions: list[Both], condition: Both, visits: list[Visit]) -> None:
    """Both make the same of the expressions."""
    ours, duck = (
        ", ".join(["SELECT id", *(f"{each[language]} AS c{n}" for n, each in enumerate(expressions))])
        + f" FROM visits WHERE {condition[language]}"
        for language in (0, 1)
    )
    agree(rows_of_onceflow(ours, visits), rows_of_duckdb(duck, visits))


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, bools(2), VISITS)
def test_expressions(expressions: list[Both], condition: Both, visits: list[Visit]) -> None:
    judged(expressions, condition, visits)


STOCK = [
    Visit(0, "ann", "a%b", 7, 2, 1.5, True, dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), 0),
    Visit(1, None, "été", -7, 0, None, None, None, 1),
    Visit(2, "", None, None, 2, -2.5, False, dt.datetime(1969, 12, 31, tzinfo=dt.UTC), 2),
    Visit(3, "7", "x", -(2**40), None, 0.0, None, None, 3),
]
TRUE = Both.same("TRUE")


def other_rules(**rules: Any) -> list[tuple[Any, str, Any]]:
    """The same rules, with others for these kinds of nodes."""
    return [
        (scalars, "_RULES", {**scalars._RULES, **{getattr(exp, kind): rule for kind, rule in rules.items()}})
    ]


def not_unknown(of: scalars.Scalars, node: exp.Expr) -> Typed:
    """NOT of unknown as true."""
    return Typed(~of.condition(node.this, "NOT").fill_null(False), pl.Boolean())


def both_known(of: scalars.Scalars, node: exp.Expr) -> Typed:
    """AND that is false as soon as one side is unknown."""
    sides = [of.condition(side, "AND").fill_null(False) for side in (node.this, node.expression)]
    return Typed(sides[0] & sides[1], pl.Boolean())


def rounded_down(of: scalars.Scalars, node: exp.Expr) -> Typed:
    """Integers divided as Python does it."""
    return Typed(of.typed(node.this).expr // of.typed(node.expression).expr, pl.Int64())


@pytest.mark.parametrize(
    ("mutant", "expression"),
    [
        (Mutant("NOT of unknown is true", other_rules(Not=not_unknown)), Both.same("NOT flag")),
        (Mutant("AND of unknown is false", other_rules(And=both_known)), Both.same("NOT (flag AND a < 7)")),
        (
            Mutant("a quotient is rounded down", other_rules(Div=rounded_down)),
            Both("(a - 10) / b", "(a - 10) // nullif(b, 0)"),
        ),
        (
            Mutant(
                "what is equal to nothing is not", [(comparing, "_with_nulls", lambda e: e.fill_null(False))]
            ),
            Both.same("a IN (9, NULL)"),
        ),
        (
            Mutant("NOT LIKE is LIKE", [(grammar._Parser, "_negate_range", lambda self, this=None: this)]),
            Both.same("page NOT LIKE 'a!%b' ESCAPE '!'"),
        ),
        (
            Mutant("a point stands for any letter", [(comparing.re, "escape", lambda text: text)]),
            Both.same("page LIKE 'a.b'"),
        ),
    ],
    ids=lambda given: given.title if isinstance(given, Mutant) else "",
)
def test_a_mutant_dies(mutant: Mutant, expression: Both) -> None:
    rows = [row for row in STOCK if row.b != 0]
    judged([expression], TRUE, rows)
    with mutated(mutant), pytest.raises(AssertionError):
        judged([expression], TRUE, rows)
