"""Rows by number: kernels and arrays give the same columns."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.kernels.ops import COMPILED, PLAIN, ops, using
from onceflow.runtime.state.rows import take_rows

pytestmark = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")


PROGRAM = """
import pyarrow as pa
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.operators.aggregation.aggregates import count, mean, sum_
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.exchange import partition_kernels
from onceflow.runtime.kernels import counting_sort, taking
from onceflow.runtime.state import cell_kernels, hash_kernels
from onceflow.runtime.state.heap import index_kernels

def variants():
    modules = (partition_kernels, counting_sort, taking, cell_kernels, hash_kernels, index_kernels)
    named = [(name, value) for module in modules for name, value in vars(module).items()]
    return {name: len(value.signatures) for name, value in named if hasattr(value, "signatures")}

schema = pa.schema([pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())])
for window in (tumbling(10), sliding(10, 5)):
    aggregates = {"n": count(), "v": sum_("v"), "m": mean("v")}
    h = OperatorHarness(WindowAggregate("w", ("k",), window, aggregates, schema).create, ["k"], 2)
    made = variants()
    columns = {"k": [f"k{i % 900}" for i in range(5_000)], "v": [*range(5_000)]}
    h.push(pa.record_batch(columns, schema=schema), [*range(5_000)])
    h.advance(2_000)
    h.finish()
    assert variants() == made, (made, variants())
assert made["hash_texts"] == made["find_or_add"] == 1 <= made["copy_texts"], made
print("ready")
"""


def test_all_kernels_are_compiled_when_an_operator_is_made():
    """Goal: no record waits for the compiler."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.stdout.strip() == "ready", done.stderr


@pytest.mark.parametrize("arrow", [pa.string(), pa.binary(), pa.large_string(), pa.int64()])
@pytest.mark.parametrize("with_null", [False, True])
def test_columns_are_taken_alike(arrow, with_null):
    values = ["", "a", "", "bb", "x" * 300, None if with_null else "c"]
    if arrow == pa.int64():
        values = [None if value is None else len(value) for value in values]
    column = pa.array(values, pa.string() if arrow == pa.binary() else arrow).cast(arrow)
    batch = pa.record_batch({"k": column, "n": pa.array(range(6))})
    for rows in (batch, batch.slice(1, 5), batch.slice(2, 1)):
        for slots in ([], [0], [len(rows) - 1, 0, 0], [*range(len(rows))]):
            with using(COMPILED):
                taken = take_rows(rows, np.array(slots, np.int64))
            taken.validate(full=True)
            with using(PLAIN):
                assert taken.equals(take_rows(rows, np.array(slots, np.int64)))
