"""A socket to one broker, opened once it is known that the broker speaks what will be said."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.wire import ProtocolError, spoken_versions, versions_request
from onceflow.runtime.sockets.tls_socket import Connected

FRAME_BYTES_MAX = 1 << 30
PREFIX_BYTES = 4
"""The bytes of the length that stands in front of each frame."""

_OPEN_S = 1.0
_OF_LOGIN = 0.8
"""A login is used for so much of its time, so that a request that is under way at the end is answered."""


class Opened(NamedTuple):
    """A connection that may be used."""

    socket: Connected
    good_until_s: float
    """When, by time.monotonic(), it should be opened anew: a little later the login ends (KIP-368)."""


def open_broker(host: str, port: int, access: BrokerAccess, needed: Mapping[int, int]) -> Opened:
    """Waits up to a second for each answer of the broker; the socket goes on with that timeout. `needed`:
    each request's number and the version it will have. Raises OSError, or ProtocolError if the broker does
    not speak one of them, or refuses the login."""
    opened = access.connect(host, port, _OPEN_S)
    good_s = math.inf
    try:
        opened.sendall(versions_request(0, access.client_id))
        spoken = spoken_versions(memoryview(read_frame(opened)))
        for api, version in needed.items():
            lowest, highest = spoken.get(api, (0, -1))
            if not lowest <= version <= highest:
                raise ProtocolError(
                    f"the broker speaks versions {lowest} to {highest} of request {api}, not {version}"
                )
        if access.login is not None:
            good_s = _OF_LOGIN * access.login.exchange(partial(_ask, opened), access.client_id)
    except BaseException:
        opened.close()
        raise
    return Opened(opened, time.monotonic() + good_s)


def _ask(opened: Connected, request: bytes) -> memoryview:
    opened.sendall(request)
    return memoryview(read_frame(opened))


def read_frame(opened: Connected) -> bytes:
    """The next answer, without its length. Waits for each part of it as long as the socket's timeout."""
    return _exactly(opened, frame_bytes(_exactly(opened, PREFIX_BYTES)))


def frame_bytes(prefix: bytes | bytearray) -> int:
    """Raises ProtocolError for a length that no answer has."""
    length: int = struct.unpack(">i", prefix)[0]
    if not 0 < length < FRAME_BYTES_MAX:
        raise ProtocolError(f"an answer of {length} bytes")
    return length


def _exactly(opened: Connected, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = opened.recv(count - len(got))
        if not more:
            raise ConnectionResetError("the broker closed the connection")
        got += more
    return got
