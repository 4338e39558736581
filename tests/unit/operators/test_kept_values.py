"""collect_list and count_distinct against lists: all kinds of windows, batches, a restore."""

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError
from onceflow.runtime.kernels.ops import PLAIN, using
from onceflow.runtime.operators.aggregation.aggregates import collect_list, count_distinct
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("note", pa.string()), ("price", pa.float64())])
AGGREGATES = {"all": collect_list("note"), "kinds": count_distinct("note"), "prices": count_distinct("price")}
VALUE = st.none() | st.sampled_from(["x", "y", ""])
PRICE = st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan])
BATCHES = st.lists(st.lists(st.tuples(st.integers(0, 30), VALUE, PRICE), max_size=5), max_size=5)


def harness(window: Window, states: Any = None, parallelism: int = 1) -> OperatorHarness:
    configured = WindowAggregate("w", ("user",), window, AGGREGATES, SCHEMA)
    return OperatorHarness(configured.create, ["user"], parallelism, states=states)


def push(to: OperatorHarness, rows: list[tuple[int, str | None, float | None]]) -> None:
    named = [{"user": "a", "note": note, "price": price} for _, note, price in rows]
    to.push(pa.RecordBatch.from_pylist(named, SCHEMA), [time for time, _, _ in rows])


@settings(max_examples=100, deadline=None)
@given(
    batches=BATCHES, at=st.integers(0, 4), window=st.sampled_from([tumbling(10), sliding(10, 4), session(3)])
)
def test_values_and_how_many_are_different(batches: list[Any], at: int, window: Window) -> None:
    with using(PLAIN):
        h = harness(window)
        for n, batch in enumerate(batches):
            push(h, batch)
            if n == at:
                states = h.snapshot()
                push(h, [(3, "lost", 9.0)])
                h.finish()
                h = harness(window, states, 2)
        h.finish()
        rows = [row for batch in batches for row in batch]
        for found in h.rows():
            mine = [row for row in rows if found["window_start"] <= row[0] < found["window_end"]]
            notes = [note for _, note, _ in mine if note is not None]
            assert sorted(found["all"] or []) == sorted(notes)
            assert (found["all"] is None) == (not notes)
            assert found["kinds"] == len(set(notes))
            assert found["prices"] == len({str(abs(price)) for _, _, price in mine if price is not None})
        assert sum(len(row["all"] or []) for row in h.rows()) >= sum(row[1] is not None for row in rows)


def test_values_come_in_the_order_of_arrival() -> None:
    h = harness(tumbling(10))
    push(h, [(5, "x", None), (3, "y", None)])
    states = h.snapshot()
    push(h, [(4, "after", None)])
    assert [b.column("value").to_pylist()[0]["all"] for b in states[0].batches("windows")] == [["x", "y"]]
    h.finish()
    assert h.rows()[0]["all"] == ["x", "y", "after"]


def test_what_has_no_equality_has_no_distinct_count() -> None:
    schema = pa.schema([("user", pa.string()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(GraphError, match="over which there is no count_distinct"):
        WindowAggregate("w", ("user",), tumbling(10), {"n": count_distinct("tags")}, schema)
