"""Avro as JSON lines: what a command prints, it writes again as it was."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from onceflow.cli.avro_values import as_text, of_json
from onceflow.connectors.formats.registry.schemas import RegisteredSchema
from onceflow.connectors.kafka.embedded.registry.avro_rules import parsed

INSTANT = dt.datetime(2026, 11, 27, 10, 30, 0, 250_000, tzinfo=dt.UTC)
CASES: list[tuple[Any, Any]] = [
    ({"type": "long", "logicalType": "timestamp-millis"}, INSTANT),
    ({"type": "long", "logicalType": "timestamp-micros"}, INSTANT),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, INSTANT.replace(tzinfo=None)),
    ({"type": "int", "logicalType": "date"}, INSTANT.date()),
    ({"type": "int", "logicalType": "time-millis"}, INSTANT.time()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, Decimal("1.50")),
    ("bytes", b"\x00\xff"),
    ({"type": "fixed", "name": "F", "size": 2}, b"\x01\xfe"),
    (["null", {"type": "long", "logicalType": "timestamp-millis"}], INSTANT),
    (["null", "bytes"], None),
    ({"type": "array", "items": "bytes"}, [b"a"]),
    ({"type": "map", "values": {"type": "int", "logicalType": "date"}}, {"k": INSTANT.date()}),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, "A"),
    ({"type": "record", "name": "I", "fields": [{"name": "y", "type": "bytes"}]}, {"y": b"z"}),
    (["string", "long"], "2026"),
]


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_what_is_printed_is_written_again(kind: Any, value: Any) -> None:
    shape = {"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]}
    printed = json.loads(as_text({"x": value}))
    given = of_json(printed, parsed(RegisteredSchema("AVRO", json.dumps(shape))))
    raw = io.BytesIO()
    fastavro.schemaless_writer(raw, shape, given)
    raw.seek(0)
    assert fastavro.schemaless_reader(raw, shape, None) == {"x": value}


def test_numbers_are_taken_for_decimals_and_instants() -> None:
    fields = [
        {"name": name, "type": kind} for name, (kind, _) in zip("xd", (CASES[0], CASES[5]), strict=True)
    ]
    shape = parsed(RegisteredSchema("AVRO", json.dumps({"type": "record", "name": "R", "fields": fields})))
    assert of_json({"x": 5, "d": 1.5, "more": "kept"}, shape) == {"x": 5, "d": Decimal("1.5"), "more": "kept"}


@pytest.mark.parametrize(("case", "said"), [(CASES[0], "has no time zone"), (CASES[5], "no decimal number")])
def test_a_text_that_is_no_value_is_told(case: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        of_json("2026-11-27T10:00", parsed(RegisteredSchema("AVRO", json.dumps(case[0]))))
