"""ControlServer: the driver's end of the control connections.

Slots and operators of the job (the `onceflow status | stop | cancel` commands) connect here. Each
connection has a thread that reads; what it reads goes to `on_message`, which must be quick and
thread-safe (the driver puts it into its queue).
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Callable

import msgspec

from onceflow.runtime.control.connection import Connection, ConnectionLostError
from onceflow.runtime.control.messages import ToDriver
from onceflow.runtime.exchange.handshake import HandshakeError, answer

HANDSHAKE_TIMEOUT_S = 10.0


class ControlServer:
    """Listens until closed. Peers are numbered; a number is never used again."""

    def __init__(
        self,
        secret: bytes,
        host: str,
        on_message: Callable[[int, ToDriver], None],
        on_lost: Callable[[int], None],
    ) -> None:
        self._secret = secret
        self._on_message = on_message
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._peers: dict[int, Connection[ToDriver]] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, 0), backlog=512)
        threading.Thread(target=self._accept_forever, name="onceflow-control", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def send(self, peer: int, message: msgspec.Struct) -> bool:
        """False if the peer is gone; then `on_lost` tells, or has told."""
        connection = self._peers.get(peer)
        if connection is None:
            return False
        try:
            connection.send(message)
        except ConnectionLostError:
            return False
        return True

    def hang_up(self, peer: int) -> None:
        """Close a peer's connection: a slot that sees it ends itself."""
        connection = self._peers.get(peer)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in list(self._peers):
            self.hang_up(peer)

    def _accept_forever(self) -> None:
        while True:
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(accepted,), name="onceflow-control-peer", daemon=True
            ).start()

    def _serve(self, accepted: socket.socket) -> None:
        try:
            accepted.settimeout(HANDSHAKE_TIMEOUT_S)
            answer(accepted, self._secret)
        except (OSError, HandshakeError, ValueError):
            accepted.close()
            return
        connection = Connection[ToDriver](accepted, ToDriver)  # type: ignore[arg-type]  # a union
        with self._lock:
            peer = next(self._numbers)
            self._peers[peer] = connection
        try:
            while True:
                self._on_message(peer, connection.receive())
        except (ConnectionLostError, msgspec.ValidationError, msgspec.DecodeError):
            pass
        finally:
            del self._peers[peer]
            connection.close()
            self._on_lost(peer)
