"""Records as lines and back: what `onceflow broker produce` reads and `consume` prints. Pure.

A line of JSON has `topic`, `partition`, `offset`, `timestamp` (ISO 8601), `key`, `value` and `headers` (name
and value pairs). Bytes that are no UTF-8 are in `key_base64`, `value_base64` instead, so that what is
printed can be read back as it was (but for topic, partition and offset, which are the new record's own); in a
header they are {"base64": ...}.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from onceflow.cli.avro_values import as_text
from onceflow.runtime.errors import OnceflowError, UsageError


class UndecodedError(OnceflowError):
    """A value is not what `Values` decodes."""


class Values(Protocol):
    """How values are bytes, where they are not plain text."""

    def decode(self, raw: bytes) -> Any:
        """What JSON can hold of a record's value. Raises UndecodedError."""

    def encode(self, value: Any, where: str) -> bytes:
        """The bytes of a value. Raises UsageError that begins with `where`."""
        ...


@dataclass(frozen=True, slots=True)
class Line:
    """A record to be written. None for key or value: null, which is no empty text."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class LineReader:
    """Makes records of lines. Raises UsageError naming the line that is none."""

    key: str | None
    key_field: str | None
    key_separator: str | None
    headers: Mapping[str, str]
    as_json: bool
    values: Values | None

    def __post_init__(self) -> None:
        given = [
            self.key is not None,
            self.key_field is not None,
            self.key_separator is not None,
            self.as_json,
        ]
        if sum(given) > 1:
            raise UsageError(
                "give one of --key, --key-field, --key-separator and --json: each says what the key is"
            )

    def read(self, number: int, line: bytes) -> Line:
        """`number`: counted from 1. `line`: with or without its end."""
        where = f"line {number}"
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        ours: list[tuple[str, bytes | None]] = [(name, each.encode()) for name, each in self.headers.items()]
        if self.as_json:
            return self._of_json(_loaded(text, where), ours, where)
        key = None if self.key is None else self.key.encode()
        if self.key_separator is not None:
            before, sign, after = text.partition(self.key_separator.encode())
            if not sign:
                raise UsageError(
                    f"{where} has no {self.key_separator!r} between key and value: {_short(text)}"
                )
            key, text = before, after
        if self.key_field is not None:
            key = _key_of(_loaded(text, where), self.key_field, where)
        if self.values is not None:
            return Line(key, self.values.encode(_loaded(text, where), where), ours)
        return Line(key, text, ours)

    def _of_json(self, row: Any, ours: list[tuple[str, bytes | None]], where: str) -> Line:
        if not isinstance(row, dict):
            raise UsageError(f"{where} is not a JSON object with key, value and headers")
        value = row.get("value")
        if self.values is not None and value is not None:
            raw: bytes | None = self.values.encode(value, where)
        else:
            raw = _bytes(row, "value", where)
        headers = row.get("headers") or []
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        try:
            theirs = [(str(name), _header(each)) for name, each in pairs]
        except (TypeError, ValueError, KeyError) as error:
            raise UsageError(f"{where}: headers must be pairs of a name and a text") from error
        return Line(_bytes(row, "key", where), raw, theirs + ours, _time_ms(row.get("timestamp"), where))


def as_json_line(message: Any, values: Values | None, is_undecoded: bool = False) -> str:
    """A message of confluent_kafka as one line. `is_undecoded`: its value is in base64 in any case, so that
    nobody takes it for a decoded one. Raises UndecodedError."""
    time = dt.datetime.fromtimestamp(message.timestamp()[1] / 1000, dt.UTC)
    row: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    fields: list[tuple[str, bytes | None]] = [("key", message.key()), ("value", message.value())]
    for name, raw in fields:
        if raw is None:
            row[name] = None
        elif name == "value" and is_undecoded:
            row |= _as_base64(name, raw)
        elif name == "value" and values is not None:
            row[name] = values.decode(raw)
        else:
            row |= _as_text(name, raw)
    if message.headers():
        row["headers"] = [[name, _shown_header(raw)] for name, raw in message.headers()]
    return as_text(row)


def _as_text(name: str, raw: bytes) -> dict[str, str]:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return _as_base64(name, raw)


def _as_base64(name: str, raw: bytes) -> dict[str, str]:
    return {f"{name}_base64": base64.b64encode(raw).decode()}


def value_text(raw: bytes | None, values: Values | None, is_undecoded: bool = False) -> str:
    """A key or a value on one line. As `as_json_line` otherwise."""
    if raw is None:
        return "null"
    if is_undecoded:
        return f"base64:{base64.b64encode(raw).decode()}"
    if values is not None:
        return as_text(values.decode(raw))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return value_text(raw, None, is_undecoded=True)


def pretty_value(raw: bytes | None, values: Values | None) -> str | None:
    """A value as JSON text, or None if it is neither JSON nor decoded by `values`. Raises UndecodedError."""
    if raw is None:
        return None
    if values is not None:
        return as_text(values.decode(raw))
    try:
        text = raw.decode()
        json.loads(text)
    except ValueError:
        return None
    return text


def _loaded(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where} is no JSON ({error}): {_short(text)}") from error


def _key_of(value: Any, field: str, where: str) -> bytes | None:
    if not isinstance(value, dict) or field not in value:
        raise UsageError(f"{where} has no field {field!r} to be its key")
    found = value[field]
    if found is None:
        return None
    return found.encode() if isinstance(found, str) else json.dumps(found).encode()


def _bytes(row: Mapping[str, Any], name: str, where: str) -> bytes | None:
    if f"{name}_base64" in row:
        try:
            return base64.b64decode(row[f"{name}_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise UsageError(f"{where}: {name}_base64 is no base64") from error
    found = row.get(name)
    if found is None:
        return None
    return found.encode() if isinstance(found, str) else json.dumps(found, ensure_ascii=False).encode()


def _header(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    return None if value is None else str(value).encode()


def _shown_header(raw: bytes | None) -> Any:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw or b"").decode()}


def _time_ms(stamp: Any, where: str) -> int | None:
    if stamp is None or type(stamp) is int:
        return stamp
    try:
        time = dt.datetime.fromisoformat(stamp)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: timestamp {stamp!r} is neither ms nor a date and time") from error
    if time.tzinfo is None:
        raise UsageError(f"{where}: timestamp {stamp} has no time zone: add Z or an offset such as +02:00")
    return round(time.timestamp() * 1000)


def _short(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace")) + ("..." if len(text) > 60 else "")
