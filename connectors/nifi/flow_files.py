"""Flow files as NiFi packs them for site-to-site. Pure.

One after the other, each is: the number of its attributes (int32); of each attribute the name and the value,
as the length in bytes (int32) and UTF-8; the length of the content (int64), and the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

UUID = "uuid"
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class FlowFile:
    """A flow file: its attributes, of which NiFi gives each the attribute uuid, and its content."""

    attributes: dict[str, str]
    content: bytes


class TornPacket(ValueError):
    """The bytes end within a flow file, or are none."""


def unpacked(body: bytes) -> Iterator[FlowFile]:
    """The flow files of a transaction. Raises TornPacket."""
    at = 0
    while at < len(body):
        (count,), at = _INT32.unpack(_piece(body, at, 4)), at + 4
        texts = []
        for _ in range(2 * count):
            (length,), at = _INT32.unpack(_piece(body, at, 4)), at + 4
            texts.append(_piece(body, at, length).decode())
            at += length
        (length,), at = _INT64.unpack(_piece(body, at, 8)), at + 8
        yield FlowFile(dict(zip(texts[::2], texts[1::2], strict=True)), _piece(body, at, length))
        at += length


def packed(flow_file: FlowFile) -> bytes:
    """A flow file as it is sent."""
    parts = [_INT32.pack(len(flow_file.attributes))]
    for pair in flow_file.attributes.items():
        for text in map(str.encode, pair):
            parts += [_INT32.pack(len(text)), text]
    return b"".join([*parts, _INT64.pack(len(flow_file.content)), flow_file.content])


def _piece(body: bytes, at: int, length: int) -> bytes:
    if length < 0 or at + length > len(body):
        raise TornPacket(f"{len(body)} bytes end within the flow file that has its next part at byte {at}")
    return body[at : at + length]
