"""Values of Avro as JSON, for commands that print and write records: what is printed can be written again.

Instants and times are ISO 8601, decimals texts of their digits, bytes texts of code points up to 255, as in
Avro's own JSON encoding. For writing, instants may be numbers, too, in the schema's unit, and decimals. Pure.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from onceflow.connectors.kafka.embedded.registry.avro_rules import AvroSchema, resolved


def as_text(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, default=_shown)


def _shown(value: Any) -> str:
    match value:
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat().replace("+00:00", "Z")
        case bytes():
            return value.decode("latin-1")
        case _:
            return str(value)


def of_json(value: Any, schema: AvroSchema) -> Any:
    """A value as json.loads gives it, as the serializer takes it. What has no place in the schema stays as
    it is: the serializer says so. Raises ValueError for a text that is no instant or number."""
    return _typed(value, schema.root, schema.named)


def _typed(value: Any, schema: Any, named: Mapping[str, Any]) -> Any:
    found = resolved(schema, named)
    if isinstance(found, list):
        return _in_union(value, found, named)
    if isinstance(found, str):
        return value.encode("latin-1") if found == "bytes" and isinstance(value, str) else value
    match found["type"], value:
        case ("record" | "error", dict()):
            types = {field["name"]: field["type"] for field in found["fields"]}
            return {n: _typed(v, types[n], named) if n in types else v for n, v in value.items()}
        case "array", list():
            return [_typed(each, found["items"], named) for each in value]
        case "map", dict():
            return {key: _typed(each, found["values"], named) for key, each in value.items()}
        case ("record" | "error" | "array" | "map" | "enum", _):
            return value
    logical = found.get("logicalType", "")
    if isinstance(value, str) and (read := _READ.get(logical)) is not None:
        return read(value)
    if logical == "decimal" and isinstance(value, str | int | float):
        return _number(value)
    return (
        value.encode("latin-1") if found["type"] in ("bytes", "fixed") and isinstance(value, str) else value
    )


def _in_union(value: Any, branches: list[Any], named: Mapping[str, Any]) -> Any:
    """The value by the one branch beside null; among several the serializer chooses, and texts stay texts."""
    rest = [branch for branch in branches if branch != "null"]
    return _typed(value, rest[0], named) if value is not None and len(rest) == 1 else value


def _number(value: str | float) -> decimal.Decimal:
    try:
        return decimal.Decimal(str(value))
    except decimal.InvalidOperation as error:
        raise ValueError(f"{value!r} is no decimal number") from error


def _instant(text: str, local: bool) -> dt.datetime:
    time = dt.datetime.fromisoformat(text)
    if not local and time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: add Z or an offset such as +02:00")
    return time


_READ: dict[str, Callable[[str], Any]] = {
    "date": dt.date.fromisoformat,
    **dict.fromkeys(("time-millis", "time-micros"), dt.time.fromisoformat),
    **{
        f"{where}timestamp-{unit}": functools.partial(_instant, local=bool(where))
        for where in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}
