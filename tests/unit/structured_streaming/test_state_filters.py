"""Which keys filters leave, against all keys that satisfy them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import datasource

from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.structured_streaming import state_filters
from onceflow.structured_streaming.state_filters import keys_left

if not hasattr(datasource, "EqualTo"):
    pytest.skip("filters are pushed down since Spark 4.1", allow_module_level=True)
EqualTo, GreaterThan, In, Not = datasource.EqualTo, datasource.GreaterThan, datasource.In, datasource.Not
KEYS = pa.schema([("user", pa.string()), ("day", pa.int16())])
USERS, DAYS = ["ann", "bob", ""], [-1, 0, 7]
FILTER = st.one_of(
    st.builds(lambda user: EqualTo(("user",), user), st.sampled_from([*USERS, "cid"])),
    st.builds(lambda day: EqualTo(("day",), day), st.sampled_from([*DAYS, 40_000])),
    st.builds(lambda days: In(("day",), tuple(days)), st.lists(st.sampled_from([*DAYS, None]), max_size=3)),
    st.builds(lambda users: In(("user",), tuple(users)), st.lists(st.sampled_from(USERS), max_size=3)),
    st.just(GreaterThan(("value",), 3)),
    st.just(EqualTo(("value", "user"), "ann")),
)


def satisfies(filter: Any, row: dict[str, Any]) -> bool:
    if filter.attribute[0] == "value":
        return True
    value = row[filter.attribute[0]]
    return value in filter.value if isinstance(filter, In) else value == filter.value


@settings(max_examples=200, deadline=None)
@given(st.lists(FILTER, max_size=4))
@example([EqualTo(("user",), "ann"), In(("day",), (7, 0, None)), In(("day",), (0, -1))])
def test_no_key_is_lost_and_only_whole_keys_are_looked_for(filters: list[Any]) -> None:
    left = keys_left(filters, KEYS)
    there = [{"user": user, "day": day} for user in USERS for day in DAYS]
    wanted = [row for row in there if all(satisfies(each, row) for each in filters)]
    named = {each.attribute[0] for each in filters if len(each.attribute) == 1}
    if left is None:
        assert not {"user", "day"} <= named
    else:
        assert [row for row in there if row in left] == wanted
        assert all(satisfies(each, row) for each in filters for row in left)


def test_a_key_that_is_lost_is_found() -> None:
    mutant = Mutant("no filter is understood", [(state_filters, "_values", lambda each, of: None)])
    with mutated(mutant), pytest.raises(AssertionError):
        test_no_key_is_lost_and_only_whole_keys_are_looked_for.hypothesis.inner_test(  # type: ignore[attr-defined]
            [EqualTo(("user",), "ann"), EqualTo(("day",), 0)]
        )


@pytest.mark.parametrize(
    ("of", "filter"),
    [
        (pa.int64(), EqualTo(("k",), "7")),
        (pa.int64(), EqualTo(("k",), True)),
        (pa.float64(), EqualTo(("k",), 0.0)),
        (pa.string(), Not(EqualTo(("k",), "a"))),
        (pa.timestamp("us"), EqualTo(("k",), 7)),
        (pa.int64(), In(("k",), tuple(range(10_001)))),
    ],
)
def test_what_may_be_another_value_for_spark_is_left_to_it(of: pa.DataType, filter: Any) -> None:
    """The key is found by its hash, which is that of its own type."""
    assert keys_left([filter], pa.schema([("k", of)])) is None
