"""What a program has itself passes the kit of sources."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from onceflow.connectors.collections.given_records import elements_source, records_source
from onceflow.runtime.contracts import Source
from onceflow.testing.kit import SourceKit

TABLE = pa.concat_tables([pa.table({"n": range(first, first + 7)}) for first in range(0, 35, 7)])


def numbers() -> Iterator[int]:
    yield from range(23)


class TestElements(SourceKit):
    def source(self) -> Source:
        return elements_source(range(23), None)


class TestTableInChunks(SourceKit):
    def source(self) -> Source:
        return records_source(TABLE, None)


class TestFunction(SourceKit):
    def source(self) -> Source:
        return records_source(numbers, None)
