"""quantile against NumPy: all kinds of windows, batches, restores; and the types of what it takes."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.kernels.ops import PLAIN, using
from onceflow.runtime.operators.aggregation import quantiles as quantiles_module
from onceflow.runtime.operators.aggregation.aggregates import quantile
from onceflow.runtime.operators.aggregation.quantiles import quantiles
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = pa.schema([("user", pa.string()), ("price", pa.float64()), ("amount", pa.int64())])
PRICE = st.none() | st.floats(-1e6, 1e6, width=32) | st.just(math.nan)
ROW = st.tuples(st.integers(0, 30), st.sampled_from("ab"), PRICE, st.none() | st.integers(-9, 9))
BATCHES = st.lists(st.lists(ROW, max_size=6), max_size=5)
RANK = st.sampled_from([0, 0.5, 0.99, 1]) | st.floats(0, 1)


def harness(window: Window, rank: float, states: Any = None, parallelism: int = 1) -> OperatorHarness:
    aggregates = {"price": quantile("price", rank), "amount": quantile("amount", rank)}
    configured = WindowAggregate("w", ("user",), window, aggregates, SCHEMA)
    return OperatorHarness(configured.create, ["user"], parallelism, states=states)


def push(to: OperatorHarness, rows: list[Any]) -> None:
    named = [dict(zip(SCHEMA.names, row[1:], strict=True)) for row in rows]
    to.push(pa.RecordBatch.from_pylist(named, SCHEMA), [row[0] for row in rows])


def check(batches: list[Any], at: int, window: Window, rank: float) -> None:
    with using(PLAIN):
        h = harness(window, rank)
        for n, batch in enumerate(batches):
            push(h, batch)
            if n == at:
                states = h.snapshot()
                push(h, [(3, "a", 9.0, 9)])  # lost in the crash
                h.finish()
                h = harness(window, rank, states, 2)
        h.finish()
    rows = [row for batch in batches for row in batch]
    for found in h.rows():
        start, end = found["window_start"], found["window_end"]
        mine = [row for row in rows if row[1] == found["user"] and start <= row[0] < end]
        assert mine
        for name, place in (("price", 2), ("amount", 3)):
            numbers = [row[place] for row in mine if row[place] is not None and row[place] == row[place]]
            assert found[name] == (float(np.quantile(np.array(numbers, float), rank)) if numbers else None)


@settings(max_examples=100, deadline=None)
@given(
    batches=BATCHES,
    at=st.integers(0, 4),
    window=st.sampled_from([tumbling(10), sliding(10, 4), session(3)]),
    rank=RANK,
)
@example([[(0, "a", 1.0, 1), (1, "a", 2.0, None)], [(2, "a", math.nan, 5)]], 0, tumbling(10), 0.25)
def test_quantiles_are_those_of_numpy(batches: Any, at: int, window: Window, rank: float) -> None:
    check(batches, at, window, rank)


def nearest_rank(numbers: Any, counts: Any, rank: float) -> Any:
    """Like `quantiles`, but not interpolated."""
    return np.rint(quantiles(numbers, counts, rank))


def test_a_quantile_that_is_not_interpolated_is_found() -> None:
    mutant = Mutant("no interpolation", [(quantiles_module, "quantiles", nearest_rank)])
    with mutated(mutant), pytest.raises(AssertionError):
        check([[(0, "a", 1.0, 1), (1, "a", 2.0, 2)]], 9, tumbling(10), 0.25)


def test_all_kinds_of_numbers_give_doubles() -> None:
    with np.errstate(all="raise"):
        assert quantiles(np.array([]), np.array([0, 0]), 0.5).tolist() == [0, 0]
    for arrow in (pa.bool_(), pa.int8(), pa.uint64(), pa.float32()):
        schema = pa.schema([("user", pa.string()), pa.field("n", arrow, nullable=False)])
        configured = WindowAggregate("w", ("user",), tumbling(10), {"half": quantile("n", 0.5)}, schema)
        assert configured.output_schema.field("half").type == pa.float64()
        h = OperatorHarness(configured.create, ["user"])
        columns = [pa.array(["a"] * 3), pa.array([0, 1, 1]).cast(arrow)]
        h.push(pa.RecordBatch.from_arrays(columns, schema=schema), [0, 1, 2])
        h.finish()
        assert [row["half"] for row in h.rows()] == [1.0]


def test_mistakes() -> None:
    with pytest.raises(OptionError, match=r"quantile\(q=50\): give a share from 0 to 1"):
        quantile("price", 50)
    with pytest.raises(GraphError, match="over which there is no quantile"):
        WindowAggregate("w", ("user",), tumbling(10), {"half": quantile("user", 0.5)}, SCHEMA)
