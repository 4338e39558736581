"""What a program has itself passes the suite of sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from onceflow.connectors.collections.given_records import elements_source, records_source
from onceflow.runtime.contracts import Source
from onceflow.runtime.testing.conformance import SOURCE_CHECKS

TABLE = pa.concat_tables([pa.table({"n": range(first, first + 7)}) for first in range(0, 35, 7)])


def numbers() -> Iterator[int]:
    yield from range(23)


SOURCES: dict[str, Source] = {
    "elements": elements_source(range(23), None),
    "a table in chunks": records_source(TABLE, None),
    "a function": records_source(numbers, None),
}


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_as_a_source(check: Callable[[Source], None], source: Source) -> None:
    check(source)
