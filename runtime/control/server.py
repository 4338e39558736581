"""ControlServer: the driver's end of the control connections.

Slots and operators of the job (the `onceflow status | stop | cancel` commands) connect here. One thread
reads from all of them, so that a thousand slots cost no thousand threads; what it finds there at one look
goes to `on_messages` at once, which must be quick (the driver puts it into its queue).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from onceflow.runtime.control.connection import Connection, ConnectionLostError, encoded
from onceflow.runtime.control.messages import ToDriver
from onceflow.runtime.errors import OptionError
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.sockets.listener import BACKLOG, PATIENCE_S, Listener
from onceflow.runtime.sockets.tls_socket import Connected

MANY_PEERS = 100
"""The number of peers from which on what comes in is gathered before it is read."""
GATHER_S = 10e-6
"""How long is gathered, in s for each peer."""
GATHER_S_MAX = 0.02


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        what = (
            "choose another --control-port"
            if error.errno == errno.EADDRINUSE
            else "give an address of this machine by --conf spark.driver.bindAddress=…, and by "
            "spark.driver.host the one by which the workers reach it"
        )
        number = error.errno or 0
        said = os.strerror(number) if number > 0 else error.strerror or str(error)
        raise OptionError(f"the driver can't listen at {host}:{port}: {said}; {what}") from error


class ControlServer:
    """Listens until closed. Peers are numbered; a number is never used again."""

    def __init__(
        self,
        credentials: Credentials,
        host: str,
        on_messages: Callable[[Sequence[tuple[int, ToDriver]]], None],
        on_lost: Callable[[int], None],
        listen_at: tuple[str, int] | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`host`: where peers find this server. `listen_at`: an address of this machine that leads there
        (default: the same) and a port (0: any free one). Raises OptionError if it can't listen there.
        `patience_s`: see Listener."""
        self._on_messages = on_messages
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._peers: dict[int, Connection[ToDriver]] = {}
        self._greeted: queue.SimpleQueue[Connected | None] = queue.SimpleQueue()
        """Connections that passed the handshake; None: closed."""
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._host = host
        self._listener = Listener(
            _listen(*(listen_at or (host, 0))),
            credentials,
            "control",
            lambda accepted, _: self._hand_over(accepted),
            patience_s,
        )
        threading.Thread(target=self._read_forever, name="onceflow-control-read", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where peers connect to."""
        return self._host, self._listener.address[1]

    @property
    def turned_away(self) -> Mapping[str, int]:
        """How many strangers have come, by why they were turned away."""
        return self._listener.turned_away

    def send(self, peer: int, message: msgspec.Struct) -> bool:
        """False if the peer is gone; then `on_lost` tells, or has told."""
        return self._send(peer, encoded(message))

    def broadcast(self, peers: Iterable[int], message: msgspec.Struct) -> None:
        """Send to each of these peers; `on_lost` tells, or has told, which are gone."""
        for_all = encoded(message)
        for peer in peers:
            self._send(peer, for_all)

    def _send(self, peer: int, message: bytes) -> bool:
        connection = self._peers.get(peer)
        if connection is None:
            return False
        try:
            connection.send_encoded(message)
        except ConnectionLostError:
            return False
        return True

    def hang_up(self, peer: int) -> None:
        """End a peer's connection: a slot that sees it ends itself, and `on_lost` tells of it."""
        connection = self._peers.get(peer)
        if connection is not None:
            connection.hang_up()

    def close(self) -> None:
        self._listener.close()
        self._hand_over(None)

    def _hand_over(self, accepted: Connected | None) -> None:
        self._greeted.put(accepted)
        with contextlib.suppress(OSError):  # the reading thread has ended
            self._wake_sender.send(b"\0")

    # --- Reading, on one thread -----------------------------------------------------------------

    def _read_forever(self) -> None:
        is_open = True
        while is_open:
            heard: list[tuple[int, ToDriver]] = []
            lost: list[int] = []
            for key, _ in self._selector.select():
                if key.fileobj is self._wake_receiver:
                    self._wake_receiver.recv(4096)
                    is_open = self._take_greeted() and is_open
                    continue
                try:
                    heard += [(key.data, message) for message in self._peers[key.data].receive_ready()]
                except (ConnectionLostError, msgspec.ValidationError, msgspec.DecodeError):
                    lost.append(key.data)
            if heard:
                self._on_messages(heard)
            for peer in lost:
                self._lose(peer)
            if len(self._peers) >= MANY_PEERS:
                # Answers to a broadcast come in one by one while it still goes out. Reading each as it
                # comes, this thread and the one that sends would take the interpreter from each other.
                time.sleep(min(GATHER_S * len(self._peers), GATHER_S_MAX))
        for peer in list(self._peers):
            self._lose(peer)
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def _take_greeted(self) -> bool:
        """Welcome the new peers; False: the server is closed."""
        is_open = True
        while not self._greeted.empty():
            accepted = self._greeted.get()
            if accepted is None:
                is_open = False
                continue
            connection = Connection[ToDriver](accepted, ToDriver)  # type: ignore[arg-type]  # a union
            peer = next(self._numbers)
            self._peers[peer] = connection
            self._selector.register(connection, selectors.EVENT_READ, peer)
        return is_open

    def _lose(self, peer: int) -> None:
        connection = self._peers.pop(peer)
        self._selector.unregister(connection)
        connection.close()
        self._on_lost(peer)
