"""A connection that carries JSON messages: length-prefixed, typed by msgspec, after the handshake."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Generic, TypeVar

import msgspec

_LENGTH = struct.Struct("<I")
MESSAGE_BYTES_MAX = 256 << 20
_BLOCK_BYTES = 64 << 10
"""Read at once: what the allocator gives without asking the system for new memory each time."""
_ENCODER = msgspec.json.Encoder()

Received = TypeVar("Received")


class ConnectionLostError(OSError):
    """The other side is gone; nothing more can be sent or received."""


def encoded(message: msgspec.Struct) -> bytes:
    """A message as it goes over a connection."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class Connection(Generic[Received]):
    """Sends messages from any thread, receives them on one. Typed by what it receives.

    Receives either one at a time with `receive`, which waits, or with `receive_ready` whenever a selector
    says that there is something; not both.
    """

    def __init__(self, connection: socket.socket, received: type[Received]) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._decoder = msgspec.json.Decoder(received)
        self._send_lock = threading.Lock()
        self._stream = connection.makefile("rb")
        self._unread = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Raises ConnectionLostError."""
        self.send_encoded(encoded(message))

    def send_encoded(self, message: bytes) -> None:
        """A message that is `encoded` already, once for many. Raises ConnectionLostError."""
        try:
            with self._send_lock:
                self._connection.sendall(message)
        except OSError as error:
            raise ConnectionLostError(str(error)) from error

    def receive(self) -> Received:
        """Waits for the next message. Raises ConnectionLostError, msgspec.ValidationError."""
        try:
            head = self._stream.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                raise ConnectionLostError("the other side closed the connection")
            (length,) = _LENGTH.unpack(head)
            if length > MESSAGE_BYTES_MAX:
                raise ConnectionLostError(f"a message of {length} bytes announced")
            body = self._stream.read(length)
        except (OSError, ValueError) as error:
            raise ConnectionLostError(str(error)) from error
        if len(body) < length:
            raise ConnectionLostError("the other side closed the connection")
        return self._decoder.decode(body)

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._connection.fileno()

    def receive_ready(self) -> list[Received]:
        """The messages that are complete now; there may be none. Waits only if nothing has come in.
        Raises ConnectionLostError, msgspec.ValidationError."""
        try:
            block = self._connection.recv(_BLOCK_BYTES)
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if not block:
            raise ConnectionLostError("the other side closed the connection")
        unread: bytes | bytearray = block  # mostly whole messages: nothing to keep
        if self._unread:
            self._unread += block
            unread = self._unread
        messages: list[Received] = []
        start, end = 0, len(unread)
        while (body := start + _LENGTH.size) <= end:
            (length,) = _LENGTH.unpack_from(unread, start)
            if length > MESSAGE_BYTES_MAX:
                raise ConnectionLostError(f"a message of {length} bytes announced")
            if body + length > end:
                break
            messages.append(self._decoder.decode(bytes(unread[body : body + length])))
            start = body + length
        if unread is self._unread:
            del self._unread[:start]
        else:
            self._unread += block[start:]
        return messages

    def set_timeout(self, timeout_s: float | None) -> None:
        """How long a send or receive may take before the connection counts as lost."""
        self._connection.settimeout(timeout_s)

    def hang_up(self) -> None:
        """Ends a waiting receive, here and on the other side. Who receives has to close."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it; a waiting receive ends, here and on the other side."""
        self.hang_up()
        self._connection.close()
