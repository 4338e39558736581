"""The formats of onceflow pass the kit of formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from onceflow.connectors.formats import Avro, CsvRow, Format, Json, Protobuf, Raw, Text
from onceflow.testing.kit import FormatKit
from tests.protobuf_messages import message_class


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


SCHEMA = {"type": "object", "required": ["user"], "properties": {"user": {"maxLength": 9}}}


class TestJsonWithASchema(TestJson):
    def format(self) -> Format:
        return Json(Purchase, json_schema=SCHEMA)

    def bad(self) -> Sequence[bytes]:
        return [*super().bad(), b'{"user":"0123456789","cents":1,"note":null,"rates":[]}']


SHOP = (
    "shop.proto",
    'syntax = "proto3"; package shop; message Purchase {'
    " string user = 1; int64 cents = 2; optional string note = 3; repeated double rates = 4; }",
)


class TestProtobuf(TestJson):
    def format(self) -> Format:
        return Protobuf(message_class("shop.Purchase", SHOP), of=Purchase, framing="none")

    def bad(self) -> Sequence[bytes]:
        return [b"\x0a\x05ann", b"\x0a\x01\xff"]


@dataclass(frozen=True)
class Sale:
    shop: str
    amount: int
    note: str | None


class TestCsvRow(FormatKit):
    def format(self) -> Format:
        return CsvRow(Sale, delimiter=";")

    def rows(self) -> pa.RecordBatch:
        sales = [Sale("", -1, None), Sale('a;"\n', 2**62, ""), Sale("\u00e4", 0, "b")]
        return pa.RecordBatch.from_pylist([vars(sale) for sale in sales], self.format().schema)

    def bad(self) -> Sequence[bytes]:
        return [b"a;six;", b"a;1", b"a;1;b\na;1;b", b"\xff;1;b"]


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
