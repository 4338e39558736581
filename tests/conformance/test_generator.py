"""Made-up records pass the kit of sources."""

from __future__ import annotations

import pyarrow as pa

from onceflow.connectors.generator.source import generator_source
from onceflow.runtime.contracts import Source
from onceflow.testing.kit import SourceKit

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("ratio", pa.float64())])


def square(n: int) -> int:
    return n * n


class TestColumns(SourceKit):
    def source(self) -> Source:
        return generator_source(SCHEMA, None, 103, 7, {"n": "number"}, None)


class TestAtARate(SourceKit):
    in_new_processes = False

    def source(self) -> Source:
        return generator_source(SCHEMA, 5_000, 22, 7, None, None)


class TestFunction(SourceKit):
    in_new_processes = False

    def source(self) -> Source:
        return generator_source(square, None, 41, 0, None, None)
