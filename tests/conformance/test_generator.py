"""Made-up records pass the suite of sources."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from onceflow.connectors.generator.source import generator_source
from onceflow.runtime.contracts import Source
from onceflow.runtime.testing.conformance import SOURCE_CHECKS

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("ratio", pa.float64())])


def square(n: int) -> int:
    return n * n


SOURCES: dict[str, Source] = {
    "columns": generator_source(SCHEMA, None, 103, 7, {"n": "number"}, None),
    "at a rate": generator_source(SCHEMA, 5_000, 22, 7, None, None),
    "a function": generator_source(square, None, 41, 0, None, None),
}


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_as_a_source(check: Callable[[Source], None], source: Source) -> None:
    check(source)
