"""What a Protobuf value in Confluent's wire format begins with: a zero byte, the schema's id in four bytes,
then which message of the schema it is: how many numbers there are, and the numbers, as zigzag varints; a
single zero byte for the first message."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.connectors.formats.protobuf.message_names import MessageNames
from onceflow.connectors.formats.registry.schemas import Schemas, UnknownSchemaError
from onceflow.connectors.formats.registry.wire_format import HEADER_BYTES, header, why_no_header

_PLAIN = 'messages alone: Protobuf(..., registry=None, framing="none")'
_DEPTH_MAX = 100
_VARINT_BYTES_MAX = 5
_KNOWN_MAX = 1_000


def framing_of(schema_id: int, path: Sequence[int]) -> bytes:
    """What a message at this path of a schema begins with."""
    if tuple(path) == (0,):
        return header(schema_id) + b"\0"
    return header(schema_id) + b"".join(map(_zigzag, (len(path), *path)))


class Framed:
    """Reads headers. A value of another message than `name` is bad: its bytes would be read as something."""

    def __init__(self, name: str, schemas: Schemas[MessageNames]) -> None:
        self._name = name
        self._schemas = schemas
        self._known: dict[bytes, str | None] = {}
        """For each header that was met whether it is a good one: None, or the reason."""

    def same_header(self, values: Sequence[bytes | None]) -> int | None:
        """Where the messages begin, if all values have the same good header: nearly always so."""
        first = values[0] if len(values) else None
        if first is None:
            return None
        begin = self.begin_of(first)
        if isinstance(begin, str):
            return None
        head = first[:begin]
        is_same = all(value is not None and value.startswith(head) for value in values)
        return begin if is_same else None

    def begin_of(self, value: bytes) -> int | str:
        """Where the message begins, or why the value is bad. Raises Retryable or Fatal as the registry
        does."""
        if len(value) < HEADER_BYTES or value[0]:
            return why_no_header(value, "Protobuf", _PLAIN)
        read = _path(value, HEADER_BYTES)
        if isinstance(read, str):
            return read
        path, begin = read
        head = value[:begin]
        if head not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            schema_id = int.from_bytes(value[1:HEADER_BYTES], "big")
            try:
                names = self._schemas.schema_of(schema_id)
            except UnknownSchemaError as error:
                return str(error)  # not kept: it may be registered later
            self._known[head] = self._reason(schema_id, path, names.at(path))
        return self._known[head] or begin

    def _reason(self, schema_id: int, path: Sequence[int], found: frozenset[str]) -> str | None:
        if self._name in found:
            return None
        if not found:
            return f"schema {schema_id} has no message at {list(path)}"
        return f"it is a {' or '.join(sorted(found))} (schema {schema_id}), not a {self._name}"


def _path(value: bytes, at: int) -> tuple[tuple[int, ...], int] | str:
    """The numbers that say which message it is, and where they end; or why there are none."""
    count, at = _varint(value, at)
    if count == 0:
        return (0,), at
    path = []
    if 0 < count <= _DEPTH_MAX:
        for _ in range(count):
            index, at = _varint(value, at)
            path.append(index)
    if not path or min(path) < 0 or at < 0:
        return "its header does not say which message of the schema it is"
    return tuple(path), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """The number there, and where it ends; (-1, -1): there is none."""
    found = 0
    if at >= 0:
        for i, byte in enumerate(value[at : at + _VARINT_BYTES_MAX]):
            found |= (byte & 0x7F) << (7 * i)
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1), at + i + 1
    return -1, -1


def _zigzag(value: int) -> bytes:
    left = value << 1
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
