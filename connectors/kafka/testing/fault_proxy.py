"""FaultProxy: between a client and a real broker; holds requests back, loses replies, cuts connections.

    with FaultProxy(kafka.bootstrap_servers) as proxy:
        proxy.on_request = lambda request: Course.HOLD_AND_CUT if request.api is Api.END_TXN else Course.PASS
        ...  # a client with bootstrap servers proxy.address; later: proxy.release()

Answers that name the broker's address are rewritten, so that a client stays behind the proxy. One
broker, no TLS.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_HOST = "127.0.0.1"


class Api(enum.IntEnum):
    """Request types by their number in Kafka's protocol."""

    PRODUCE = 0
    OFFSET_FETCH = 9
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28


class Course(enum.Enum):
    """What becomes of a request."""

    PASS = "pass"
    HOLD = "hold"
    """Kept until release(); the client waits."""
    HOLD_AND_CUT = "hold and cut"
    """Kept, and the connection is cut: librdkafka connects anew and sends it again."""
    LOSE_REPLY = "lose reply"
    """The broker gets it; the client hears nothing of this or of anything later on the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request on its way: its type (or an unknown number), and how many of that type came before."""

    api: int
    count: int


class FaultProxy:
    """Threads of its own; `on_request` is called on them, for each request before it goes on."""

    def __init__(self, upstream: str) -> None:
        host, port = upstream.rsplit(":", 1)
        self._upstream = (host, int(port))
        self._server = socket.create_server((_HOST, 0))
        self._port = int(self._server.getsockname()[1])
        self._held: list[bytes] = []
        self._counts: dict[int, int] = {}
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.on_request: Callable[[Request], Course] = lambda request: Course.PASS

    @property
    def address(self) -> str:
        return f"{_HOST}:{self._port}"

    @property
    def held(self) -> int:
        """Requests that wait for release."""
        return len(self._held)

    def release(self) -> None:
        """Send on what was held, on a connection of its own; returns when the broker has answered."""
        with self._lock:
            held, self._held = self._held, []
        for frame in held:
            with socket.create_connection(self._upstream, timeout=30) as connection:
                connection.sendall(frame)
                _read_frame(connection)

    def cut(self) -> None:
        """End every connection; new ones are welcome."""
        with self._lock:
            for connection in self._sockets:
                _end(connection)
            self._sockets.clear()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="fault-proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        _end(self._server)
        self.cut()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._server.accept()
            except OSError:
                continue
            try:
                upstream = socket.create_connection(self._upstream, timeout=30)
            except OSError:
                _end(client)  # at once: who is behind the proxy must see that nobody is there
                continue
            upstream.settimeout(None)
            pair = _Pair(client, upstream)
            with self._lock:
                self._sockets |= {client, upstream}
            threading.Thread(target=self._requests, args=(pair,), daemon=True).start()
            threading.Thread(target=self._replies, args=(pair,), daemon=True).start()

    def _requests(self, pair: _Pair) -> None:
        while (frame := _read_frame(pair.client)) is not None:
            api = struct.unpack(">h", frame[4:6])[0]
            with self._lock:
                count = self._counts.get(api, 0)
                self._counts[api] = count + 1
            match self.on_request(Request(api, count)):
                case Course.PASS:
                    pair.forward(frame)
                case Course.LOSE_REPLY:
                    pair.is_deaf = True
                    pair.forward(frame)
                case Course.HOLD:
                    self._hold(frame)
                case Course.HOLD_AND_CUT:
                    self._hold(frame)
                    break
        pair.end()

    def _hold(self, frame: bytes) -> None:
        with self._lock:
            self._held.append(frame)

    def _replies(self, pair: _Pair) -> None:
        theirs = _address(self._upstream[1])
        ours = _address(self._port)
        while (frame := _read_frame(pair.upstream)) is not None:
            if not pair.is_deaf:
                pair.answer(frame.replace(theirs, ours))
        pair.end()


class _Pair:
    """The two connections of one client connection."""

    def __init__(self, client: socket.socket, upstream: socket.socket) -> None:
        self.client = client
        self.upstream = upstream
        self.is_deaf = False

    def forward(self, frame: bytes) -> None:
        _send(self.upstream, frame)

    def answer(self, frame: bytes) -> None:
        _send(self.client, frame)

    def end(self) -> None:
        _end(self.client)
        _end(self.upstream)


def _address(port: int) -> bytes:
    """How metadata and coordinator answers spell an address: the host's text, then the port."""
    return _HOST.encode() + struct.pack(">i", port)


def _read_frame(connection: socket.socket) -> bytes | None:
    """Four bytes of length and what follows; None at the end of the connection."""
    head = _read_exactly(connection, 4)
    if head is None:
        return None
    body = _read_exactly(connection, struct.unpack(">i", head)[0])
    return None if body is None else head + body


def _read_exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        try:
            part = connection.recv(size - len(parts))
        except OSError:
            return None
        if not part:
            return None
        parts += part
    return bytes(parts)


def _send(connection: socket.socket, frame: bytes) -> None:
    try:
        connection.sendall(frame)
    except OSError:
        _end(connection)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may not be connected any more
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
