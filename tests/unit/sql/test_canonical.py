"""The text of an expression, which names state: pinned, since another text would lose every user's state."""

from __future__ import annotations

import pytest

from onceflow.runtime.sql.canonical import canonical
from onceflow.runtime.sql.grammar import parsed


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("user", "user"),
        ("v.user", "user"),
        ('v."user"', "user"),
        ("(user)", "user"),
        ("`two words`", "`two words`"),
        ('"null"', "`null`"),
        ("v.place.city", "place.city"),
        ("count( * )", "COUNT(*)"),
        ("COUNT(DISTINCT v.page)", "COUNT(DISTINCT page)"),
        ("sum(v.amount) filter (where v.amount>0 -- positive\n)", "SUM(amount) FILTER(WHERE amount > 0)"),
        ("SUM(amount*2+1)", "SUM(amount * 2 + 1)"),
        ("Upper(user)||'x'", "UPPER(user) || 'x'"),
        ("CASE WHEN a THEN 1 END", "CASE WHEN a THEN 1 END"),
        ("CAST(a AS bigint)", "CAST(a AS BIGINT)"),
        ("TUMBLE(v.ts, INTERVAL '1' hour)", "TUMBLE(ts, INTERVAL '1' HOUR)"),
        ("EXTRACT(year from t)", "EXTRACT(YEAR FROM t)"),
        ("FLOOR(t to day)", "FLOOR(t, DAY)"),
        ("MAX(x) + MIN(x)", "MAX(x) + MIN(x)"),
    ],
)
def test_the_text_of_an_expression(written: str, text: str) -> None:
    (expression,) = parsed(f"SELECT {written} FROM visits AS v").expressions
    assert canonical(expression, "v") == text
