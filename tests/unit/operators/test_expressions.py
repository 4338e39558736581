"""Fused expressions against the same steps one after the other in polars."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.operators.expressions import Columns, Expressions, Keep, Step, needed_columns, prune
from onceflow.runtime.records import Origin, Records

col = pl.col
SCHEMA = pa.schema(
    [("a", pa.int64()), ("b", pa.int64()), ("s", pa.string()), ("m", pa.map_(pa.string(), pa.int64()))]
)
START = {name: name for name in SCHEMA.names}

KEEPS = [
    col("a") > 2,
    col("b") != 0,
    col("s").str.contains("x"),
    pl.lit(True),
    pl.lit(False),
    col("a").is_null(),
]
MAKES = {
    "a": [col("a"), col("a") + col("b"), pl.lit(7, pl.Int64), col("b")],
    "b": [col("b"), col("s").str.len_chars().cast(pl.Int64), col("a") * 2],
    "s": [
        col("s"),
        col("s").str.to_uppercase(),
        pl.lit("y"),
        pl.concat_str(col("s"), col("a").cast(pl.String)),
    ],
    "m": [col("m")],
}


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    made: list[Step] = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            made.append(Keep(draw(st.sampled_from(KEEPS))))
        else:
            made.append(Columns(tuple((n, draw(st.sampled_from(e))) for n, e in MAKES.items())))
    return made


rows = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.integers(-3, 6),
            "b": st.none() | st.integers(-1, 1),
            "s": st.none() | st.sampled_from(["", "x", "axb", "é"]),
            "m": st.none() | st.just([("k", 1)]),
        }
    ),
    min_size=1,
    max_size=8,
)


def naive(program: list[Step], batch: pa.RecordBatch) -> pl.DataFrame:
    frame = pl.from_arrow(batch.drop_columns(["m"]))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_row_index("row")
    for step in program:
        if isinstance(step, Keep):
            frame = frame.filter(step.predicate)
        else:
            frame = frame.with_columns(**{n: e for n, e in step.expressions if n != "m"})
    return frame


@settings(max_examples=200, deadline=None)
@given(steps(), rows, st.sets(st.sampled_from(SCHEMA.names), min_size=1))
def test_fused_steps_agree_with_steps_one_by_one(
    program: list[Step], data: list[dict[str, object]], wanted: set[str]
) -> None:
    batch = pa.RecordBatch.from_pylist(data, schema=SCHEMA)
    schema = pa.schema([f for f in SCHEMA if f.name in wanted])
    origin = Origin(("p-0",), np.zeros(len(batch), np.uint16), np.arange(len(batch)) + 100)
    given_columns = batch.select([n for n in SCHEMA.names if n in needed_columns(program, wanted)] or ["a"])
    transform = Expressions(prune(program, schema.names), schema)
    got = transform(Records(given_columns, np.arange(len(batch)) * 10, None, origin))
    want = naive(program, batch)
    if got is None:
        assert not len(want)
        return
    assert got.batch.schema == schema
    got.batch.validate(full=True)
    assert got.event_time is not None
    assert got.origin is not None
    kept = want["row"].to_list()
    assert (got.event_time // 10).tolist() == kept
    assert (got.origin.offset - 100).tolist() == kept
    for name in schema.names:
        expected = [data[row]["m"] for row in kept] if name == "m" else want[name].to_list()
        assert got.batch.column(name).to_pylist() == expected


def test_columns_that_nobody_computes_are_not_copied() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": [3, 4]})
    transform = Expressions(
        [Columns((("x", col("a")), ("c", col("b") + 1)))], pa.schema([("x", pa.int64()), ("c", pa.int64())])
    )
    got = transform(Records(batch))
    assert got is not None
    assert got.batch.column("x").buffers()[1].address == batch.column("a").buffers()[1].address


def test_a_later_predicate_guards_what_comes_after_it() -> None:
    """A strict cast that fails on rows which the predicate before it has dropped."""
    batch = pa.record_batch({"s": ["1", "no", "3"]})
    program: list[Step] = [Keep(col("s") != "no"), Keep(col("s").cast(pl.Int64) > 1)]
    got = Expressions(program, batch.schema)(Records(batch))
    assert got is not None
    assert got.batch.to_pylist() == [{"s": "3"}]


@pytest.mark.parametrize(
    ("expression", "is_fine"),
    [
        (col("a") + 1, True),
        (col("s").str.to_uppercase(), True),
        (pl.when(col("a") > 1).then(col("b")), True),
        (pl.struct("a", "b").struct.field("a"), True),
        (col("s").cast(pl.Int64), True),
        (pl.lit(3), True),
        (col("a").sum(), False),
        (col("a") - col("a").mean(), False),
        (col("a").shift(1), False),
        (col("a").cum_sum(), False),
        (col("a").rank(), False),
        (col("a").sum().over("b"), False),
        (col("a").filter(col("a") > 1), False),
        (col("a").drop_nulls(), False),
        (col("a").fill_null(strategy="forward"), False),
        (col("a").fill_null(0), True),
        (col("a").sort(), False),
        (pl.len(), False),
        (col("s").is_duplicated(), False),
    ],
)
def test_expressions_over_other_rows_are_found(expression: pl.Expr, is_fine: bool) -> None:
    check = ColumnCheck("uid", SCHEMA.remove(3))
    if is_fine:
        check.field("x", expression)
    else:
        with pytest.raises(GraphError, match="looks at more than one row"):
            check.field("x", expression)


@pytest.mark.parametrize("number", [1.5, 3.0, 7.0, 1.1])
def test_a_division_by_a_number_looks_at_one_row(number: float) -> None:
    """Though polars computes the last digit of a value that is alone in another way."""
    check = ColumnCheck("uid", pa.schema([("f", pa.float64())]))
    assert check.field("x", col("f") / number).type == pa.float64()
    with pytest.raises(GraphError, match="looks at more than one row"):
        check.field("x", col("f") / col("f").max())
