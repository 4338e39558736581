"""KeyRows: texts in memory of their own answer as rows of Arrow do, whatever is appended, kept and frozen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.kernels.ops import COMPILED, PLAIN, Ops, ops, using
from onceflow.runtime.state.columns import ArrowRows
from onceflow.runtime.state.heap.key_rows import key_rows
from onceflow.runtime.state.heap.text_rows import TextRows

pytestmark = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")

TYPES = (pa.string(), pa.large_string())
TEXTS = st.one_of(
    st.none(), st.text("aé", max_size=3), st.sampled_from(["x" * 31, "y" * 32, "z" * 33, "w" * 700])
)


def batches(arrow: pa.DataType) -> st.SearchStrategy[pa.RecordBatch]:
    def made(values: list[tuple[str | None, str]], cut: int) -> pa.RecordBatch:
        first, second = pa.array([v for v, _ in values], arrow), pa.array([v for _, v in values], pa.binary())
        fields = [pa.field("b", pa.binary(), nullable=False), pa.field("n", pa.int64()), pa.field("a", arrow)]
        columns = [second, pa.array(range(len(values))), first]
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        return batch.slice(min(cut, len(values)))

    return st.builds(
        made, st.lists(st.tuples(TEXTS, st.text("ab", max_size=40)), max_size=12), st.integers(0, 3)
    )


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_texts_are_kept_as_rows_of_arrow_are(data: st.DataObject) -> None:
    arrow = data.draw(st.sampled_from(TYPES))
    schema = pa.schema([pa.field("a", arrow), pa.field("b", pa.binary(), nullable=False)])
    fast, slow = TextRows(schema), ArrowRows(schema)
    frozen: list[tuple[Any, Any, int]] = []
    for step in data.draw(
        st.lists(st.sampled_from(["append", "append", "freeze", "keep", "forget"]), max_size=12)
    ):
        if step == "append":
            batch = data.draw(batches(arrow))
            rows = numbers(data, batch.num_rows)
            for either in (fast, slow):
                either.append(batch, rows)
        elif step == "freeze":
            frozen.append((fast.frozen(), slow.frozen(), len(slow)))
        elif step == "keep":
            slots = np.array(sorted(set(numbers(data, len(slow)).tolist())), np.int64)
            for either in (fast, slow):
                either.keep(slots)
        else:
            frozen.clear()
        assert len(fast) == len(slow)
    for left, right, size in [*frozen, (fast, slow, len(slow))]:
        slots = numbers(data, size)
        taken = left.take(slots)
        taken.validate(full=True)
        assert taken == right.take(slots)
        assert taken.schema == schema


def numbers(data: st.DataObject, below: int) -> np.ndarray:
    drawn = data.draw(st.lists(st.integers(0, below - 1), max_size=15)) if below else []
    return np.array(drawn, np.int64)


def test_growing_over_many_batches_keeps_all() -> None:
    """Goal: memory that is replaced, and texts of more bytes than a first guess."""
    from onceflow.runtime.kernels import taking

    schema = pa.schema([pa.field("k", pa.string())])
    rows, expected = TextRows(schema), []
    frozen = []
    for n in range(60):
        texts = [f"{n}-{i}" * (i % 9) for i in range(500)]
        rows.append(pa.record_batch({"k": texts}), np.arange(0, 500, 2))
        memory = rows._columns[0]._memory
        assert len(memory.values) >= len(memory) + taking.SLACK, "the last text is read with what follows"
        expected += texts[::2]
        if n % 7 == 0:
            frozen.append((rows.frozen(), len(expected)))
    rows.keep(np.arange(0, len(expected), 3))
    rows.append(pa.record_batch({"k": ["end"] * 9_000}), np.arange(9_000))
    assert rows.take(np.arange(len(rows)))["k"].to_pylist() == expected[::3] + ["end"] * 9_000
    for held, size in frozen:
        assert held.take(np.arange(size))["k"].to_pylist() == expected[:size]


def test_memory_is_used_again_if_nobody_holds_it() -> None:
    """Goal: a window that fires leaves its memory to the next one."""
    schema = pa.schema([pa.field("k", pa.string())])
    rows = TextRows(schema)
    rows.append(pa.record_batch({"k": ["text"] * 9_000}), np.arange(9_000))
    memory = rows._columns[0]._memory.values.ctypes.data
    held = rows.frozen()
    rows.keep(np.arange(8_000))
    assert rows._columns[0]._memory.values.ctypes.data != memory
    del held
    memory = rows._columns[0]._memory.values.ctypes.data
    rows.keep(np.arange(7_000))
    assert rows._columns[0]._memory.values.ctypes.data == memory


@pytest.mark.parametrize("arrow", TYPES)
def test_many_neighbours_are_a_view_that_stays_as_it_is(arrow: pa.DataType) -> None:
    """Goal: what a window gives out while it is fired must not change when its memory is used again."""
    schema = pa.schema([pa.field("k", arrow)])
    texts = [None if n % 7 == 3 else f"{n}" * (n % 4) for n in range(10_000)]
    rows = TextRows(schema)
    rows.append(pa.record_batch({"k": pa.array(texts, arrow)}), np.arange(len(texts)))
    memory = rows._columns[0]._memory.values
    taken = rows.take(np.arange(1_000, 6_000))["k"]
    begin = memory.ctypes.data
    assert begin <= taken.buffers()[2].address < begin + len(memory), "not copied"
    few = rows.take(np.arange(1_000, 1_100))["k"]
    assert not begin <= few.buffers()[2].address < begin + len(memory), "or they would keep all of it"
    del memory
    rows.keep(np.arange(9_000, 10_000))
    rows.append(pa.record_batch({"k": pa.array(["other"] * 9_000, arrow)}), np.arange(9_000))
    taken.validate(full=True)
    assert taken.type == arrow
    assert taken.to_pylist() == texts[1_000:6_000]
    assert few.to_pylist() == texts[1_000:1_100]
    assert rows.take(np.arange(10_000))["k"].to_pylist() == texts[9_000:] + ["other"] * 9_000


@pytest.mark.parametrize(
    ("arrow", "chosen", "kind"),
    [(pa.string(), COMPILED, TextRows), (pa.string(), PLAIN, ArrowRows), (pa.int64(), COMPILED, ArrowRows)],
)
def test_texts_lie_in_memory_of_their_own_with_kernels_only(arrow: Any, chosen: Ops, kind: type) -> None:
    with using(chosen):
        assert isinstance(key_rows(pa.schema([pa.field("k", arrow)])), kind)
