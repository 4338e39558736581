"""A socket to one broker, opened once it is known that the broker speaks what will be said."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping

from onceflow.connectors.kafka.wire import ProtocolError, spoken_versions, versions_request

FRAME_BYTES_MAX = 1 << 30
PREFIX_BYTES = 4
"""The bytes of the length that stands in front of each frame."""

_OPEN_S = 1.0


def open_broker(host: str, port: int, client_id: str, needed: Mapping[int, int]) -> socket.socket:
    """Waits up to a second for the broker, twice; the socket goes on with that timeout. `needed`: each
    request's number and the version it will have. Raises OSError, or ProtocolError if the broker does not
    speak one of them."""
    opened = socket.create_connection((host, port), _OPEN_S)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.sendall(versions_request(0, client_id))
        spoken = spoken_versions(memoryview(read_frame(opened)))
        for api, version in needed.items():
            lowest, highest = spoken.get(api, (0, -1))
            if not lowest <= version <= highest:
                raise ProtocolError(
                    f"the broker speaks versions {lowest} to {highest} of request {api}, not {version}"
                )
    except BaseException:
        opened.close()
        raise
    return opened


def read_frame(opened: socket.socket) -> bytes:
    """The next answer, without its length. Waits for each part of it as long as the socket's timeout."""
    return _exactly(opened, frame_bytes(_exactly(opened, PREFIX_BYTES)))


def frame_bytes(prefix: bytes | bytearray) -> int:
    """Raises ProtocolError for a length that no answer has."""
    length: int = struct.unpack(">i", prefix)[0]
    if not 0 < length < FRAME_BYTES_MAX:
        raise ProtocolError(f"an answer of {length} bytes")
    return length


def _exactly(opened: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = opened.recv(count - len(got))
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        got += more
    return got
