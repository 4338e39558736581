"""Framing: the bytes of an answer to events, as they come, in any pieces. Pure.

Server-sent events are those of the HTML standard, 9.2.6 (interpreting an event stream).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from onceflow.runtime.errors import BadRecordError

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event of a stream."""

    data: bytes
    id: str | None
    """Its own; None: it has none."""
    name: str = "message"


class Framing(Protocol):
    """The state of one answer. A new connection gets a new one: what was cut in two is begun anew."""

    retry_ms: int | None
    """How long the server wants to be left alone after a cut; None: it has not said."""

    def feed(self, data: bytes) -> list[Event]:
        """The events that are whole with this."""
        ...


class ServerSentEvents:
    """Framing of `text/event-stream`. Blocks without data are no events."""

    def __init__(self) -> None:
        self.retry_ms: int | None = None
        self._rest = b""
        self._is_first = True

    def feed(self, data: bytes) -> list[Event]:
        data = self._rest + data
        if self._is_first:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest = data
                return []
            data = data.removeprefix(_BOM)
            self._is_first = False
        held = b""
        if b"\r" in data:
            if data.endswith(b"\r"):  # half of a line's end, perhaps
                data, held = data[:-1], b"\r"
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *blocks, rest = data.split(b"\n\n")
        self._rest = rest + held
        return [event for block in blocks if (event := self._event(block)) is not None]

    def _event(self, block: bytes) -> Event | None:
        data: list[bytes] = []
        event_id, name = None, "message"
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"id" and b"\0" not in value:
                event_id = value.decode(errors="replace")
            elif field == b"event":
                name = value.decode(errors="replace") or "message"
            elif field == b"retry" and value.isdigit():
                self.retry_ms = int(value)
        return Event(b"\n".join(data), event_id or None, name) if data else None


class JsonLines:
    """Framing of JSON objects, one a line, with the id in a field. Empty lines keep a connection alive."""

    retry_ms: int | None = None

    def __init__(self, id_of: Callable[[bytes], str | None]) -> None:
        self._id_of = id_of
        self._rest = b""

    def feed(self, data: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [Event(line, self._id_of(line)) for line in lines if line.strip()]


def id_in(field: str | None) -> Callable[[bytes], str | None]:
    """What finds a line's id: the value of this field, a text or an integer. None: lines have no ids."""
    if field is None:
        return lambda line: None
    line_type: Any = msgspec.defstruct("Line", [("id", str | int | None, None)], rename={"id": field})
    decoder = msgspec.json.Decoder(line_type)

    def find(line: bytes) -> str | None:
        try:
            found: str | int | None = decoder.decode(line).id
        except msgspec.DecodeError as error:
            raise BadRecordError(
                f"a line has no id that can be read: {error}; it begins with {line[:100]!r}. The position of "
                f"the stream is the id, field {field!r}: name the right one with id_field="
            ) from error
        return None if found is None else str(found)

    return find
