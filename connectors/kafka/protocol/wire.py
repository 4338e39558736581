"""How Kafka's protocol is written: frames, headers, lengths, tagged fields; and ApiVersions, which tells what
a broker speaks.

Everything is big-endian; in flexible versions of a request (KIP-482) lengths are varints, one more than
what they count, and each structure ends in tagged fields. Pure: no socket.
See https://kafka.apache.org/protocol
"""

from __future__ import annotations

import struct

_API_VERSIONS = 18


class ProtocolError(Exception):
    """An answer that is not what this version of the protocol says."""


def versions_request(correlation_id: int, client_id: str) -> bytes:
    """ApiVersions 0: which versions of each request the broker speaks."""
    return framed(header(_API_VERSIONS, 0, correlation_id, client_id))


def spoken_versions(frame: memoryview) -> dict[int, tuple[int, int]]:
    """The lowest and the highest version of each request, from the answer to versions_request (without its
    length)."""
    try:
        _, error, count = struct.unpack_from(">ihi", frame)
        if error:
            raise ProtocolError(f"ApiVersions is answered with error {error}")
        rows = [struct.unpack_from(">hhh", frame, 10 + 6 * number) for number in range(count)]
    except struct.error as error:
        raise ProtocolError(f"the answer to ApiVersions is cut off: {error}") from error
    return {api: (lowest, highest) for api, lowest, highest in rows}


class Reader:
    """Reads a frame from its beginning to its end."""

    def __init__(self, frame: memoryview) -> None:
        self._frame = frame
        self._at = 0

    def int16(self) -> int:
        return self._number(">h", 2)

    def int32(self) -> int:
        return self._number(">i", 4)

    def int64(self) -> int:
        return self._number(">q", 8)

    def length(self) -> int:
        """Read the length of a compact array, or of compact bytes; a null has 0."""
        return max(0, self._varint() - 1)

    def raw(self, count: int) -> bytes:
        start, end = self.skip(count)
        return bytes(self._frame[start:end])

    def skip(self, count: int) -> tuple[int, int]:
        """Skip `count` bytes; where they begin and end in the frame."""
        start, self._at = self._at, self._at + count
        if self._at > len(self._frame):
            raise ProtocolError(f"the answer is cut off: {count} bytes from {start} of {len(self._frame)}")
        return start, self._at

    def text(self) -> str:
        """Read a compact text; a null is ""."""
        return self.raw(self.length()).decode(errors="replace")

    def tags(self) -> dict[int, tuple[int, int]]:
        """Tagged fields: where each begins and ends, by its number."""
        return {self._varint(): self.skip(self._varint()) for _ in range(self._varint())}

    def _number(self, form: str, size: int) -> int:
        start, _ = self.skip(size)
        found: int = struct.unpack_from(form, self._frame, start)[0]
        return found

    def _varint(self) -> int:
        value = shift = 0
        while shift < 35:
            start, _ = self.skip(1)
            byte = self._frame[start]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ProtocolError("a length in the answer is longer than any")


def header(api: int, version: int, correlation_id: int, client_id: str) -> bytes:
    name = client_id.encode()
    return struct.pack(">hhih", api, version, correlation_id, len(name)) + name


def compact_length(count: int) -> bytes:
    """The length of a compact array, or of compact bytes, as it is written."""
    value, encoded = count + 1, bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def compact_text(text: str) -> bytes:
    raw = text.encode()
    return compact_length(len(raw)) + raw


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body
