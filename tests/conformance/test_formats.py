"""The formats of onceflow pass the kit of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from onceflow.connectors.formats import Avro, Format, Json, Raw, Text
from onceflow.testing.kit import FormatKit


@dataclass(frozen=True)
class Purchase:
    user: str
    cents: int
    note: str | None
    rates: list[float]


class TestJson(FormatKit):
    def format(self) -> Format:
        return Json(Purchase)

    def rows(self) -> pa.RecordBatch:
        schema = self.format().schema
        rows = [
            Purchase("ann", 5, None, []),
            Purchase("bob \u00e4\U0001f600", -1, "", [0.5]),
            Purchase("", 2**62, '"\n', [1, 2]),
        ]
        return pa.RecordBatch.from_pylist([vars(row) for row in rows], schema)

    def bad(self) -> Sequence[bytes]:
        return [b"", b"{", b"[]", b"{}", b'{"user":1,"cents":1,"note":null,"rates":[]}']


class TestAvro(TestJson):
    def format(self) -> Format:
        return Avro(Purchase, framing="none")

    def bad(self) -> Sequence[bytes]:
        return [b"", b"\x06an", b"\x06ann"]


class TestRaw(FormatKit):
    made: ClassVar[Format] = Raw()

    def format(self) -> Format:
        return self.made

    def rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"value": value} for value in (b"", b"\xff", b"abc")])


class TestText(FormatKit):
    def format(self) -> Format:
        return Text("line")

    def rows(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"line": line} for line in ("", "\u00e4", "abc")])

    def bad(self) -> Sequence[bytes]:
        return [b"\xff", b"a\xc3"]
