"""What evictors are made of, and what is refused."""

from typing import Any

import pytest

from onceflow.runtime.errors import OptionError
from onceflow.runtime.operators.triggers.evictors import BuiltInEvictor, evict_count, evict_delta, evict_time


def apart(one: Any, other: Any) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("evictor", "title"),
    [
        (evict_count(10), "the last 10 rows"),
        (evict_time("10 s"), "rows of the last 10000 ms"),
        (evict_delta(5, "price"), "rows less than 5.0 from the last by 'price'"),
        (evict_delta(0.5, apart), "rows less than 0.5 from the last by apart"),
    ],
)
def test_they_have_titles(evictor: BuiltInEvictor, title: str) -> None:
    assert evictor.title == title


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: evict_count(0), "give a number of rows that stay, 1 at least"),
        (lambda: evict_count(True), "give a number of rows"),
        (lambda: evict_time(0), "an age is at least 1 ms"),
        (lambda: evict_delta(0, "price"), "give a number above 0"),
        (lambda: evict_delta(1, 2), "give a column's name, or a function of a record and the last"),  # type: ignore[arg-type]
    ],
)
def test_mistakes(make: Any, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        make()
