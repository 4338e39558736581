"""TlsSocket: a TLS connection that is read and written as a plain socket is."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence

_RECORD_BYTES = 16 << 10
"""The most that goes out as one TLS record, and comes in by one call."""


class TlsSocket:
    """The part of a socket's methods that connections to brokers and between slots use. What OpenSSL must
    wait for, other bytes than those that were asked for included, is a BlockingIOError, as it is on a plain
    socket. One thread at a time may be in `recv`, `recv_into`, `send`, `sendall`, `sendmsg` or `close`."""

    def __init__(self, secured: ssl.SSLSocket) -> None:
        self._secured = secured

    def fileno(self) -> int:
        return self._secured.fileno()

    def settimeout(self, timeout_s: float | None) -> None:
        self._secured.settimeout(timeout_s)

    def setblocking(self, is_blocking: bool) -> None:
        self._secured.setblocking(is_blocking)

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self._secured.setsockopt(level, option, value)

    @property
    def hidden_bytes(self) -> int:
        """Bytes that are decrypted already, so that no poll shows them: of the record that was read last."""
        return self._secured.pending()

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
        """All of it, in many records, or a BlockingIOError, after which OpenSSL wants the same bytes again,
        though it has sent some; more may follow them."""
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

    def shutdown(self, how: int) -> None:
        """Called from any thread. Not `SSLSocket.shutdown`, which makes a plain socket of it under the thread
        that reads."""
        socket.socket.shutdown(self._secured, how)

    def close(self) -> None:
        self._secured.close()


Connected = socket.socket | TlsSocket
