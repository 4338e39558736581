"""Channels between processes: one authenticated TCP connection per channel.

A connection per channel makes backpressure and alignment plain: a channel that is not read (because its
task has no room, or it is blocked by a barrier) gives its sender none; no other channel is held up. All
sockets are non-blocking and served by the slot's own thread in `Network.pump`, so the data plane has no
locks; only the handshakes at the start run on a thread of their own.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from onceflow.runtime.clock import Clock
from onceflow.runtime.exchange.channel import CAPACITY_BYTES
from onceflow.runtime.exchange.channel_bound import ChannelBound
from onceflow.runtime.exchange.frames import FrameCodec
from onceflow.runtime.exchange.remote_channel import PeerLostError, RemoteInput, RemoteOutput
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.sockets.handshake import HandshakeError
from onceflow.runtime.sockets.listener import PATIENCE_S, Listener
from onceflow.runtime.sockets.tls_socket import Connected

SOCKET_BUFFER_BYTES = 512 << 10
_ON_ITS_WAY = 2
"""How many times what a channel within a process may hold: it takes a while until its sender hears what was
taken."""
HANDSHAKE_TIMEOUT_S = 10.0

ChannelKey = tuple[int, int]
"""(edge id, upstream subtask): which channel of the receiving slot a connection is."""


class _Pumped(Protocol):
    """A socket's owner: told when the socket can be read or written."""

    def on_ready(self, events: int) -> None: ...


class Network:
    """All connections of one slot: listens, connects, and moves bytes when pumped."""

    def __init__(
        self, credentials: Credentials, attempt: int, host: str, patience_s: float = PATIENCE_S
    ) -> None:
        """Raises UsageError if `host` is no address of this machine. `patience_s`: see Listener."""
        self._credentials = credentials
        self._attempt = attempt
        self.slot = -1
        """Who we are to our peers; set once the driver has said so, before `connect`."""
        self._selector = selectors.DefaultSelector()
        self._connections: list[Connected] = []
        self._accepted: dict[ChannelKey, Connected] = {}
        self._is_closed = False
        self._accept_changed = threading.Condition()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ, None)
        self._listener = Listener(host, credentials, "exchange", self._take, patience_s)

    @property
    def address(self) -> tuple[str, int]:
        """The address that peers connect to."""
        return self._listener.address

    @property
    def turned_away(self) -> Mapping[str, int]:
        """How many strangers have come, by why they were turned away."""
        return self._listener.turned_away

    def connect(
        self,
        address: tuple[str, int],
        edge_id: int,
        codec: FrameCodec,
        to_slot: int,
        capacity_bytes: int = CAPACITY_BYTES,
        goal_ms: float | None = None,
    ) -> RemoteOutput:
        """Open the channel of an edge to a peer's subtask. `goal_ms`: see ChannelBound. Raises Retryable if
        the peer is not there."""
        try:
            greeting = {"attempt": self._attempt, "edge": edge_id, "slot": self.slot}
            connection = connect(address, self._credentials, greeting, HANDSHAKE_TIMEOUT_S)
        except (OSError, HandshakeError) as error:
            raise PeerLostError(f"slot {to_slot} can't be reached: {error}") from error
        self._adopt(connection, capacity_bytes)
        bound = ChannelBound(_ON_ITS_WAY * capacity_bytes, goal_ms)
        return RemoteOutput(connection, codec, self._selector, f"slot {to_slot}", bound)

    def inputs(
        self,
        codecs: Mapping[ChannelKey, FrameCodec],
        timeout_s: float,
        capacity_bytes: int = CAPACITY_BYTES,
        goal_ms: float | None = None,
        clock: Clock | None = None,
    ) -> dict[ChannelKey, RemoteInput]:
        """The channels from the peers, once every one of them has connected. `goal_ms`, which needs a clock:
        as their senders have it. Raises Retryable."""
        with self._accept_changed:
            if not self._accept_changed.wait_for(lambda: codecs.keys() <= self._accepted.keys(), timeout_s):
                missing = sorted({f"slot {slot}" for _, slot in codecs.keys() - self._accepted.keys()})
                raise PeerLostError(f"{', '.join(missing)} did not connect within {timeout_s:.0f} s")
            connections = {key: self._accepted.pop(key) for key in codecs}
        inputs = {}
        for key, connection in connections.items():
            self._adopt(connection, capacity_bytes)
            peer = f"slot {key[1]}"
            bound = ChannelBound(_ON_ITS_WAY * capacity_bytes, goal_ms)
            inputs[key] = RemoteInput(connection, codecs[key], self._selector, peer, bound, clock)
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
        self._listener.close()
        with self._accept_changed:
            self._is_closed = True
            waiting = list(self._accepted.values())
        for connection in (*self._connections, *waiting, self._wake_receiver, self._wake_sender):
            connection.close()
        self._selector.close()

    def _adopt(self, connection: Connected, capacity_bytes: int) -> None:
        buffer_bytes = min(SOCKET_BUFFER_BYTES, capacity_bytes // 2)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._connections.append(connection)

    def _take(self, connection: Connected, greeting: Mapping[str, Any]) -> None:
        """A peer's channel, on a thread of its own. What an attempt says that is over is not heard."""
        try:
            key = (int(greeting["edge"]), int(greeting["slot"]))
            is_welcome = greeting["attempt"] == self._attempt
        except (ValueError, KeyError, TypeError):
            connection.close()
            return
        with self._accept_changed:
            if is_welcome and not self._is_closed:
                self._accepted[key] = connection
                self._accept_changed.notify_all()
                return
        connection.close()
