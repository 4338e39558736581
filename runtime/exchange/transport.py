"""Channels between processes: one authenticated TCP connection per channel.

A connection per channel makes backpressure and alignment plain: a channel that is not read (because it
is full, or blocked by a barrier) fills its socket, and its sender finds no room; no other channel is
held up. All sockets are non-blocking and served by the slot's own thread in `Network.pump`, so the
data plane has no locks; only the handshakes at the start run on a thread of their own.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from onceflow.runtime.errors import Retryable
from onceflow.runtime.exchange.channel import CAPACITY_BYTES, size_of
from onceflow.runtime.exchange.frames import FRAME_BYTES_MAX, HEADER, FrameCodec
from onceflow.runtime.exchange.handshake import HandshakeError, answer, call
from onceflow.runtime.records import Element

SOCKET_BUFFER_BYTES = 512 << 10
HANDSHAKE_TIMEOUT_S = 10.0

ChannelKey = tuple[int, int]
"""(edge id, upstream subtask): which channel of the receiving slot a connection is."""


class PeerLostError(Retryable):
    """The slot on the other side of a channel is gone; the attempt can't go on."""


class _Pumped(Protocol):
    """A socket's owner: told when the socket can be read or written."""

    def on_ready(self, events: int) -> None: ...


class RemoteOutput:
    """The sender's end. Sends at once what the socket takes, queues the rest."""

    def __init__(
        self,
        connection: socket.socket,
        codec: FrameCodec,
        selector: selectors.BaseSelector,
        peer: str,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._selector = selector
        self._peer = peer
        self._capacity_bytes = capacity_bytes
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0

    @property
    def has_room(self) -> bool:
        return self._unsent_bytes < self._capacity_bytes

    def send(self, element: Element) -> None:
        was_idle = not self._unsent
        for part in self._codec.encode(element):
            view = memoryview(part)
            self._unsent.append(view)
            self._unsent_bytes += len(view)
        if was_idle and not self._flush():
            self._selector.register(self._connection, selectors.EVENT_WRITE, self)

    def on_ready(self, events: int) -> None:
        if self._flush():
            self._selector.unregister(self._connection)

    def _flush(self) -> bool:
        """Send until the socket is full. True if nothing is left."""
        while self._unsent:
            part = self._unsent[0]
            try:
                sent = self._connection.send(part)
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerLostError(f"{self._peer} is gone: {error}") from error
            self._unsent_bytes -= sent
            if sent == len(part):
                self._unsent.popleft()
            else:
                self._unsent[0] = part[sent:]
        return True


class RemoteInput:
    """The receiver's end. Reads frames into memory while there is room, else leaves them in the socket."""

    def __init__(
        self,
        connection: socket.socket,
        codec: FrameCodec,
        selector: selectors.BaseSelector,
        peer: str,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self._connection = connection
        self._codec = codec
        self._selector = selector
        self._peer = peer
        self._capacity_bytes = capacity_bytes
        self._elements: deque[Element] = deque()
        self._queued_bytes = 0
        self._header = bytearray(HEADER.size)
        self._frame: bytearray | None = None
        self._filled = 0
        self._kind = self._meta_length = 0
        self._is_registered = True
        selector.register(connection, selectors.EVENT_READ, self)

    def receive(self) -> Element | None:
        if not self._elements:
            return None
        element = self._elements.popleft()
        self._queued_bytes -= size_of(element)
        if not self._is_registered and self._queued_bytes < self._capacity_bytes:
            self._selector.register(self._connection, selectors.EVENT_READ, self)
            self._is_registered = True
        return element

    def on_ready(self, events: int) -> None:
        while self._queued_bytes < self._capacity_bytes:
            try:
                if not self._read_some():
                    return
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLostError(f"{self._peer} is gone: {error}") from error
        self._selector.unregister(self._connection)
        self._is_registered = False

    def _read_some(self) -> bool:
        """One read of the header or the frame. False: the socket had less than that."""
        target = self._header if self._frame is None else self._frame
        if len(target) > self._filled:
            with memoryview(target) as view:
                wanted = len(target) - self._filled
                count = self._connection.recv_into(view[self._filled :])
            if count == 0:
                raise PeerLostError(f"{self._peer} closed its channel")
            self._filled += count
            if count < wanted:
                return False
        self._filled = 0
        if self._frame is None:
            self._kind, self._meta_length, body_length = HEADER.unpack(self._header)
            if body_length > FRAME_BYTES_MAX:
                raise PeerLostError(f"{self._peer} sent a frame of {body_length} bytes")
            self._frame = bytearray(self._meta_length + body_length)
        else:
            self._deliver(self._frame)
            self._frame = None
        return True

    def _deliver(self, frame: bytearray) -> None:
        view = memoryview(frame)
        meta = bytes(view[: self._meta_length])
        element = self._codec.decode(self._kind, meta, view[self._meta_length :])
        self._elements.append(element)
        self._queued_bytes += size_of(element)


class Network:
    """All connections of one slot: listens, connects, and moves bytes when pumped."""

    def __init__(self, secret: bytes, attempt: int, host: str) -> None:
        self._secret = secret
        self._attempt = attempt
        self.slot = -1
        """Who we are to our peers; set once the driver has said so, before `connect`."""
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((host, 0), backlog=512)
        self._connections: list[socket.socket] = []
        self._accepted: dict[ChannelKey, socket.socket] = {}
        self._accept_changed = threading.Condition()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        threading.Thread(target=self._accept_forever, name="onceflow-accept", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """The address that peers connect to."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def connect(
        self,
        address: tuple[str, int],
        edge_id: int,
        codec: FrameCodec,
        to_slot: int,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> RemoteOutput:
        """Open the channel of an edge to a peer's subtask. Raises Retryable if the peer is not there."""
        try:
            connection = socket.create_connection(address, timeout=HANDSHAKE_TIMEOUT_S)
            greeting = {"attempt": self._attempt, "edge": edge_id, "slot": self.slot}
            call(connection, self._secret, greeting)
        except (OSError, HandshakeError) as error:
            raise PeerLostError(f"slot {to_slot} can't be reached: {error}") from error
        self._adopt(connection, capacity_bytes)
        return RemoteOutput(connection, codec, self._selector, f"slot {to_slot}", capacity_bytes)

    def inputs(
        self,
        codecs: Mapping[ChannelKey, FrameCodec],
        timeout_s: float,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> dict[ChannelKey, RemoteInput]:
        """The channels from the peers, once every one of them has connected. Raises Retryable."""
        with self._accept_changed:
            if not self._accept_changed.wait_for(lambda: codecs.keys() <= self._accepted.keys(), timeout_s):
                missing = sorted({f"slot {slot}" for _, slot in codecs.keys() - self._accepted.keys()})
                raise PeerLostError(f"{', '.join(missing)} did not connect within {timeout_s:.0f} s")
            connections = {key: self._accepted.pop(key) for key in codecs}
        inputs = {}
        for key, connection in connections.items():
            self._adopt(connection, capacity_bytes)
            peer = f"slot {key[1]}"
            inputs[key] = RemoteInput(connection, codecs[key], self._selector, peer, capacity_bytes)
        return inputs

    def pump(self, timeout_ms: float) -> bool:
        """Move bytes; wait at most timeout_ms for a socket to be ready. True if any was.

        Called by the slot's thread only. Raises PeerLostError.
        """
        ready = self._selector.select(timeout_ms / 1000)
        for key, events in ready:
            owner: _Pumped | None = key.data
            if owner is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_receiver.recv(4096)
            else:
                owner.on_ready(events)
        return bool(ready)

    def wake(self) -> None:
        """End a waiting `pump`. From any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_sender.send(b"w")

    def close(self) -> None:
        """Close every socket; peers see the end of their channels."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close alone leaves a waiting accept waiting
        self._listener.close()
        with self._accept_changed:
            waiting = list(self._accepted.values())
        for connection in (*self._connections, *waiting, self._wake_receiver, self._wake_sender):
            connection.close()
        self._selector.close()

    def _adopt(self, connection: socket.socket, capacity_bytes: int) -> None:
        buffer_bytes = min(SOCKET_BUFFER_BYTES, capacity_bytes // 2)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._connections.append(connection)

    def _accept_forever(self) -> None:
        """Accept peers until the listener is closed. A stranger or a stale attempt is turned away."""
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._welcome, args=(connection,), name="onceflow-accept-peer", daemon=True
            ).start()

    def _welcome(self, connection: socket.socket) -> None:
        """On a thread of its own: a stranger who says nothing holds up nobody."""
        try:
            connection.settimeout(HANDSHAKE_TIMEOUT_S)
            greeting = answer(connection, self._secret)
            if greeting["attempt"] != self._attempt:
                raise HandshakeError("another attempt")
            key = (int(greeting["edge"]), int(greeting["slot"]))
        except (OSError, HandshakeError, ValueError, KeyError, TypeError):
            connection.close()
            return
        with self._accept_changed:
            self._accepted[key] = connection
            self._accept_changed.notify_all()
