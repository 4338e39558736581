"""What is prepared is all that is used: no kernel is compiled or loaded when records are there."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.formats import Avro, Json
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.kernels.preparation import prepare_kernels
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.tables import Layout, keyed_table

ROOT = Path(__file__).resolve().parents[3]
NAMES = pa.schema([pa.field("s", pa.string(), False), pa.field("n", pa.int32()), pa.field("f", pa.float64())])

pytestmark = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")


def kernel_files() -> list[str]:
    folders = ("connectors", "runtime", "sinks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*_kernels.py")]
    return [".".join(("onceflow", *path.relative_to(ROOT).with_suffix("").parts)) for path in sorted(paths)]


def entries(module: str) -> dict[str, Any]:
    """The kernels of a file that code which is not compiled calls."""
    loaded = importlib.import_module(module)
    text = Path(str(loaded.__file__)).read_text()
    inner = {
        node.func.id
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return {
        f"{module}.{name}": value
        for name, value in vars(loaded).items()
        if hasattr(value, "signatures")
        and value.__module__ == module
        and name not in inner
        and not name.startswith("_")
    }


def test_every_kernel_is_prepared() -> None:
    prepare_kernels()
    called_elsewhere = {"skip_kernels", "value_kernels"}  # by row_kernels only
    files = [module for module in kernel_files() if module.rsplit(".", 1)[1] not in called_elsewhere]
    assert files
    unprepared = [
        name for module in files for name, kernel in entries(module).items() if not kernel.signatures
    ]
    assert unprepared == []


def test_prepared_kernels_are_those_that_records_meet() -> None:
    prepare_kernels()
    before = {name: list(k.signatures) for module in kernel_files() for name, k in entries(module).items()}
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["a", "ä", "b" * 300]), pa.array([1, None, 3], pa.int32()), pa.array([0.5, 1e300, None])],
        schema=NAMES,
    )
    encoded = Json().encoder(NAMES).encode(rows)
    for values in (encoded, encoded.cast(pa.large_binary()), encoded.slice(1), encoded.to_pylist()):
        Json(NAMES).decoder().decode(values)
    avro = Avro(NAMES, framing="none")
    avro.decoder(frozenset({"s"})).decode(avro.encoder(NAMES).encode(rows))
    keys = pa.record_batch({"k": pa.array([f"user-{i % 700}" for i in range(5_000)])})
    table = keyed_table(Layout(["k"], keys.schema, {}, "start"))
    table.find_or_add(keys, hash_keys(keys, ["k"]), np.zeros(5_000, np.int64))
    after = {name: list(k.signatures) for module in kernel_files() for name, k in entries(module).items()}
    assert after == before
