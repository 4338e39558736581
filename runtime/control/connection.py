"""A connection that carries JSON messages: length-prefixed, typed by msgspec, after the handshake."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from typing import Generic, TypeVar

import msgspec

from onceflow.runtime.sockets.tls_socket import Connected

_LENGTH = struct.Struct("<I")
MESSAGE_BYTES_MAX = 256 << 20
_BLOCK_BYTES = 64 << 10
"""Read at once: what the allocator gives without asking the system for new memory each time, and no less than
a TLS record (16 KiB), of which no selector would show the rest."""
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
    says that there is something; not both. The socket itself never waits: a TLS connection can't be in two
    calls at once, so whoever waits does so outside of it.
    """

    def __init__(self, connection: Connected, received: type[Received]) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._decoder = msgspec.json.Decoder(received)
        self._timeout_ms: float | None = None
        self._send_lock = threading.Lock()
        """Held for a whole message."""
        self._call_lock = threading.Lock()
        """Held for one call of the socket."""
        self._unread = bytearray()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Raises ConnectionLostError."""
        self.send_encoded(encoded(message))

    def send_encoded(self, message: bytes) -> None:
        """A message that is `encoded` already, once for many. Raises ConnectionLostError."""
        unsent = memoryview(message)
        try:
            with self._send_lock:
                while unsent:
                    try:
                        with self._call_lock:
                            sent = self._connection.send(unsent)
                    except BlockingIOError:
                        self._wait(select.POLLOUT)
                    else:
                        unsent = unsent[sent:]
        except OSError as error:
            raise ConnectionLostError(str(error)) from error

    def receive(self) -> Received:
        """Waits for the next message. Raises ConnectionLostError, msgspec.ValidationError."""
        while (end := self._end_of_message(self._unread, 0)) is None:
            try:
                self._unread += self._read()
            except BlockingIOError:
                try:
                    self._wait(select.POLLIN)
                except OSError as error:
                    raise ConnectionLostError(str(error)) from error
        body = bytes(self._unread[_LENGTH.size : end])
        del self._unread[:end]
        return self._decoder.decode(body)

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self._connection.fileno()

    def receive_ready(self) -> list[Received]:
        """The messages that are complete now; there may be none. Never waits.
        Raises ConnectionLostError, msgspec.ValidationError."""
        try:
            block = self._read()
        except BlockingIOError:
            return []
        unread: bytes | bytearray = block  # mostly whole messages: nothing to keep
        if self._unread:
            self._unread += block
            unread = self._unread
        messages: list[Received] = []
        start = 0
        while (end := self._end_of_message(unread, start)) is not None:
            messages.append(self._decoder.decode(bytes(unread[start + _LENGTH.size : end])))
            start = end
        if unread is self._unread:
            del self._unread[:start]
        else:
            self._unread += block[start:]
        return messages

    def set_timeout(self, timeout_s: float | None) -> None:
        """How long a send or receive may wait before the connection counts as lost."""
        self._timeout_ms = None if timeout_s is None else timeout_s * 1000

    def hang_up(self) -> None:
        """Ends a waiting receive, here and on the other side. Who receives has to close."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it; a waiting receive ends, here and on the other side."""
        self.hang_up()
        with self._call_lock:
            self._connection.close()

    def _read(self) -> bytes:
        """What is there: all of it, as far as a selector would not show it. Raises ConnectionLostError, and
        BlockingIOError if there is nothing, or only a part of a TLS record."""
        try:
            with self._call_lock:
                block = self._connection.recv(_BLOCK_BYTES)
        except BlockingIOError:
            raise
        except OSError as error:
            raise ConnectionLostError(str(error)) from error
        if not block:
            raise ConnectionLostError("the other side closed the connection")
        return block

    def _wait(self, event: int) -> None:
        """Raises OSError if the connection was closed here meanwhile, or the time is over."""
        number = self.fileno()
        if number < 0:
            raise OSError("the connection is closed")
        poll = select.poll()
        poll.register(number, event)
        if not poll.poll(self._timeout_ms):
            raise TimeoutError("timed out")

    @staticmethod
    def _end_of_message(unread: bytes | bytearray, start: int) -> int | None:
        """Where the message that begins at `start` ends; None: not here yet."""
        if len(unread) < start + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(unread, start)
        if length > MESSAGE_BYTES_MAX:
            raise ConnectionLostError(f"a message of {length} bytes announced")
        end: int = start + _LENGTH.size + length
        return end if end <= len(unread) else None
