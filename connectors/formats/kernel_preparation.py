"""Calls the kernels of the formats: see runtime/kernels/preparation.py."""

from __future__ import annotations

import importlib.util

import pyarrow as pa

from onceflow.connectors.formats.avro.format import Avro
from onceflow.connectors.formats.json.format import Json

_ROW = pa.RecordBatch.from_arrays(
    [pa.array(["a"]), pa.array([1])],
    schema=pa.schema([pa.field("text", pa.string(), False), pa.field("number", pa.int64(), False)]),
)


def prepare() -> None:
    """One row; the same kernels serve all schemas."""
    Json(_ROW.schema).decoder().decode(pa.array([b'{"text":"a","number":1}']))
    Json().encoder(_ROW.schema).encode(_ROW)
    if importlib.util.find_spec("fastavro") is not None:
        avro = Avro(_ROW.schema, framing="none")
        avro.decoder().decode(avro.encoder(_ROW.schema).encode(_ROW))
