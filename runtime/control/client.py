"""ControlClient: a slot's end of the control connection.

A thread reads the driver's messages into a queue, which the slot's own thread empties between two
steps. When the connection ends, the attempt is over for this process, whatever it is doing just then:
`on_lost` is called on the reading thread (in an executor it ends the process, so that no zombie goes
on writing; see runtime/hosts/spark/executor.py).
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable

import msgspec

from onceflow.runtime.clock import Clock
from onceflow.runtime.control.connection import Connection, ConnectionLostError
from onceflow.runtime.control.message import Message
from onceflow.runtime.control.messages import Alive, Assignment, ToSlot
from onceflow.runtime.errors import Retryable, Unavailable
from onceflow.runtime.sockets.connect import connect
from onceflow.runtime.sockets.credentials import Credentials
from onceflow.runtime.sockets.handshake import HandshakeError

CONNECT_TIMEOUT_S = 20.0


class ControlClient:
    """Connects when made. Raises Unavailable if the driver can't be reached."""

    def __init__(self, address: tuple[str, int], credentials: Credentials, clock: Clock) -> None:
        try:
            connection = connect(address, credentials, {"role": "slot"}, CONNECT_TIMEOUT_S)
        except (OSError, HandshakeError) as error:
            host, port = address
            raise Unavailable(
                f"the driver at {host}:{port} can't be reached from {socket.gethostname()}: {error}; "
                "give an address that the workers reach by --conf spark.driver.host=…, and let a firewall "
                "between them pass this port (--control-port makes it a fixed one)"
            ) from error
        self._connection = Connection[ToSlot](connection, ToSlot)  # type: ignore[arg-type]  # a union
        self._clock = clock
        self._commands: queue.SimpleQueue[ToSlot] = queue.SimpleQueue()
        self._heard_ms = self._clock.monotonic_ms()

    def send(self, message: Message) -> None:
        """Send to the driver, from any thread. Raises Retryable if it is gone."""
        try:
            self._connection.send(message)
        except ConnectionLostError as error:
            raise Retryable(f"the driver is gone: {error}") from error

    def wait_assignment(self, timeout_s: float) -> Assignment | None:
        """The first message of the driver, once all slots have said hello. None: it sent us away."""
        self._connection.set_timeout(timeout_s)
        try:
            first = self._connection.receive()
        except ConnectionLostError:
            return None
        self._connection.set_timeout(None)
        return first if isinstance(first, Assignment) else None

    def listen(self, on_command: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Start reading. `on_command`: something is in the queue; `on_lost`: the connection has ended."""

        def read() -> None:
            try:
                while True:
                    command = self._connection.receive()
                    self._heard_ms = self._clock.monotonic_ms()
                    if not isinstance(command, Alive):
                        self._commands.put(command)
                        on_command()
            except (ConnectionLostError, msgspec.ValidationError):
                on_lost()

        threading.Thread(target=read, name="onceflow-control", daemon=True).start()

    @property
    def silent_ms(self) -> float:
        """How long ago the driver was heard last. A machine that vanishes closes no connection."""
        return self._clock.monotonic_ms() - self._heard_ms

    def poll(self) -> ToSlot | None:
        """The next command, if there is one. Never waits."""
        try:
            return self._commands.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self._connection.close()
