"""approx_quantile and approx_count_distinct: what they count, how far they are off, what a snapshot has."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.kernels.ops import PLAIN, using
from onceflow.runtime.operators.aggregation.accumulator import Arrivals
from onceflow.runtime.operators.aggregation.aggregates import approx_count_distinct, approx_quantile
from onceflow.runtime.operators.aggregation.sketch_library import sketch_library
from onceflow.runtime.operators.aggregation.sketches import Hll, Kll, Sketches, SketchKind
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.table import LiveRows
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = pa.schema([("user", pa.string()), ("note", pa.string()), ("price", pa.float64())])
AGGREGATES = {
    "notes": approx_count_distinct("note"),
    "prices": approx_count_distinct("price"),
    "half": approx_quantile("price", 0.5),
    "top": approx_quantile(pl.col("price") * 2, 1),
}
PRICE = st.none() | st.sampled_from([0.0, -0.0, 1.5, -7.25, 100.0, math.nan])
ROW = st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.none() | st.text("xyz", max_size=2), PRICE)
BATCHES = st.lists(st.lists(ROW, max_size=6), max_size=5)


def harness(window: Window, states: Any = None, parallelism: int = 1) -> OperatorHarness:
    configured = WindowAggregate("w", ("user",), window, AGGREGATES, SCHEMA)
    return OperatorHarness(configured.create, ["user"], parallelism, states=states)


def push(to: OperatorHarness, rows: list[Any]) -> None:
    named = [dict(zip(SCHEMA.names, row[1:], strict=True)) for row in rows]
    to.push(pa.RecordBatch.from_pylist(named, SCHEMA), [row[0] for row in rows])


def check(batches: list[Any], at: int, window: Window) -> None:
    """Each result is exact: there are few values."""
    with using(PLAIN):
        h = harness(window)
        for n, batch in enumerate(batches):
            push(h, batch)
            if n == at:
                states = h.snapshot()
                push(h, [(t, user, "lost", 1e9) for t in range(31) for user in "ab"])  # lost in the crash
                h.finish()
                h = harness(window, states, 2)
        h.finish()
    rows = [row for batch in batches for row in batch]
    for found in h.rows():
        start, end = found["window_start"], found["window_end"]
        mine = [row for row in rows if row[1] == found["user"] and start <= row[0] < end]
        prices = sorted(row[3] for row in mine if row[3] is not None and not math.isnan(row[3]))
        assert found["notes"] == len({row[2] for row in mine if row[2] is not None})
        assert found["prices"] == len({str(row[3] + 0.0) for row in mine if row[3] is not None})
        assert found["half"] == (prices[-(-len(prices) // 2) - 1] if prices else None)
        assert found["top"] == (2 * prices[-1] if prices else None)


@settings(max_examples=100, deadline=None)
@given(
    batches=BATCHES, at=st.integers(0, 4), window=st.sampled_from([tumbling(10), sliding(10, 4), session(3)])
)
@example([[(0, "a", "x", 1.5)], [(0, "a", "y", 100.0), (4, "a", "z", None)]], 0, tumbling(10))
def test_few_values_are_counted_exactly(batches: Any, at: int, window: Window) -> None:
    check(batches, at, window)


def merged_into_nothing(self: Hll, sketch: Any, other: Any) -> Any:
    """What a window that has merged held before is gone."""
    return other


def test_a_merge_that_loses_a_side_is_found() -> None:
    mutant = Mutant("a merge loses one side", [(Hll, "merged", merged_into_nothing)])
    with mutated(mutant), pytest.raises(AssertionError):
        check([[(0, "a", "x", 1.5), (8, "a", "y", 1.5)], [(4, "a", None, None)]], 9, session(5))


@pytest.mark.parametrize("kind", [Kll(1, 200), Hll()], ids=["kll", "hll"])
def test_what_was_frozen_stays_as_it_was(kind: SketchKind) -> None:
    """A snapshot is written while records go on."""

    def arrivals(value: float) -> Arrivals:
        return Arrivals(np.arange(2), pa.array([value] * 2), np.zeros(2, np.int64))

    sketches = Sketches(kind)
    sketches.grow(2)
    sketches.update(arrivals(1.0))
    frozen = sketches.freeze(LiveRows(2))
    sketches.keep(np.array([1, 0]))
    sketches.update(arrivals(2.0))
    sketches.merge(np.array([0]), sketches, np.array([1]))
    sketches.clear(np.array([1]))
    restored = Sketches(kind)
    restored.grow(2)
    restored.load(np.arange(2), frozen(np.arange(2)))
    assert restored.results(np.arange(2)).to_pylist() == [1, 1]
    assert sketches.results(np.arange(2)).to_pylist()[0] == 2


@pytest.mark.parametrize("k", [200, 800])
def test_a_quantile_of_many_numbers_is_within_its_bound(k: int) -> None:
    """Three times the bound of 99 % is not passed by chance: the draws of the library have no seed."""
    numbers = np.random.default_rng(7).normal(size=200_000)
    schema = pa.schema([("user", pa.string()), ("price", pa.float64())])
    ranks = [0.01, 0.5, 0.99]
    aggregates = {f"q{rank}": approx_quantile("price", rank, k) for rank in ranks}
    h = OperatorHarness(WindowAggregate("w", ("user",), sliding(40, 10), aggregates, schema).create, ["user"])
    for part in range(20):
        prices = numbers[part * 10_000 : (part + 1) * 10_000]
        batch = pa.RecordBatch.from_arrays([pa.array(["a"] * len(prices)), pa.array(prices)], schema=schema)
        h.push(batch, np.full(len(prices), 2 * part))
    h.finish()
    [whole] = [row for row in h.rows() if row["window_start"] == 0]
    bound = sketch_library().kll_doubles_sketch(k).normalized_rank_error(False)
    assert bound < {200: 0.0134, 800: 0.0035}[k], "as the docstring says"
    for rank in ranks:
        assert abs(np.mean(numbers <= whole[f"q{rank}"]) - rank) < 3 * bound


def test_a_count_of_many_values_is_within_its_bound_and_the_same_in_any_order() -> None:
    found = set()
    for number in range(3):
        values = np.arange(100_000)
        np.random.default_rng(number).shuffle(values)
        schema = pa.schema([("user", pa.string()), ("n", pa.int64())])
        configured = WindowAggregate(
            "w", ("user",), sliding(10, 5), {"n": approx_count_distinct("n")}, schema
        )
        h = OperatorHarness(configured.create, ["user"])
        for part in np.array_split(values, 1 + number):
            batch = pa.RecordBatch.from_arrays([pa.array(["a"] * len(part)), pa.array(part)], schema=schema)
            h.push(batch, part % 10)
        h.finish()
        [whole] = [row["n"] for row in h.rows() if row["window_start"] == 0]
        found.add(whole)
    assert len(found) == 1
    assert abs(found.pop() - 100_000) < 0.051 * 100_000


def test_a_snapshot_has_the_bytes_of_the_library() -> None:
    h = harness(tumbling(10))
    push(h, [(5, "a", "x", 2.5), (3, "a", "y", 4.0)])
    [value] = [v for state in h.snapshot() for b in state.batches("windows") for v in b["value"].to_pylist()]
    assert sketch_library().kll_doubles_sketch.deserialize(value["half"]).n == 2
    assert round(sketch_library().hll_sketch.deserialize(value["notes"]).get_estimate()) == 2
    configured = WindowAggregate("w", ("user",), tumbling(10), AGGREGATES, SCHEMA)
    assert [(part.kind, part.type) for part in configured.description.parts][1:3] == [
        ("approx_count_distinct", "binary"),
        ("approx_quantile", "binary"),
    ]


PROGRAM = """
import numpy as np, pyarrow as pa
from onceflow.runtime.operators.aggregation.accumulator import Arrivals
from onceflow.runtime.operators.aggregation.sketches import Hll, Kll, SketchKind, Sketches
from onceflow.runtime.state.table import LiveRows
sketches = Sketches(Hll())
sketches.grow(1)
values = pa.array([f"value {n}" for n in range(3_000)])
sketches.update(Arrivals(np.zeros(3_000, np.int64), values, np.zeros(3_000, np.int64)))
print(sketches.freeze(LiveRows(1))(np.array([0])).to_pylist()[0].hex())
"""


def test_the_sketch_of_a_value_is_the_same_in_every_process() -> None:
    """Python's hashes of strings are others in each process: what these two have is the same."""
    command = [sys.executable, "-c", PROGRAM]
    made = {
        subprocess.run(
            command, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True, timeout=120
        ).stdout
        for seed in "12"
    }
    assert len(made) == 1


def test_mistakes() -> None:
    with pytest.raises(OptionError, match=r"approx_quantile\(k=1\): give a number from 8 to 65535"):
        approx_quantile("price", 0.5, k=1)
    with pytest.raises(OptionError, match=r"approx_quantile\(q=99\): give a share"):
        approx_quantile("price", 99)
    schema = pa.schema([("user", pa.string()), ("tags", pa.list_(pa.string()))])
    with pytest.raises(GraphError, match="over which there is no approx_count_distinct"):
        WindowAggregate("w", ("user",), tumbling(10), {"n": approx_count_distinct("tags")}, schema)
