"""TlsSocket: a TLS connection that is read and written as a plain socket is."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

_RECORD_BYTES = 16 << 10
"""TLS sends so many bytes as one record; each call sends one."""


class TlsSocket:
    """The part of a socket's methods that connections to brokers use. What OpenSSL must wait for, other bytes
    than those that were asked for included, is a BlockingIOError, as it is on a plain socket."""

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self._secured = secured

    def fileno(self) -> int:
        return self._secured.fileno()

    def settimeout(self, timeout_s: float | None) -> None:
        self._secured.settimeout(timeout_s)

    def setblocking(self, is_blocking: bool) -> None:
        self._secured.setblocking(is_blocking)

    def recv(self, count: int) -> bytes:
        try:
            return self._secured.recv(count)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def recv_into(self, target: memoryview) -> int:
        """At most one TLS record, 16 KiB: until this raises, there may be more that no poll shows."""
        try:
            return self._secured.recv_into(target)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, data: bytes | memoryview) -> int:
        try:
            return self._secured.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def sendall(self, data: bytes) -> None:
        self._secured.sendall(data)

    def sendmsg(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Small pieces go out in one TLS record, since each record costs."""
        if len(pieces[0]) >= _RECORD_BYTES or len(pieces) == 1:
            return self.send(pieces[0])
        joined = bytearray()
        for piece in pieces:
            joined += piece[: _RECORD_BYTES - len(joined)]
            if len(joined) == _RECORD_BYTES:
                break
        return self.send(memoryview(joined))

    def close(self) -> None:
        self._secured.close()
