"""Listener: takes connections of a run's own processes, and turns everybody else away.

Anybody who reaches the port may connect, send what he likes, or nothing. He gets no byte of the job, is hung
up on after a while, and holds up nobody: each handshake is on a thread of its own, there are so many of them
at most, and when that many are under way those that take longest go first.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.errors import UsageError
from onceflow.runtime.sockets.credentials import Credentials, tls_context
from onceflow.runtime.sockets.handshake import HandshakeError, answer
from onceflow.runtime.sockets.tls_socket import Connected, TlsSocket

PATIENCE_S = 10.0
"""How long a handshake may take."""
FULL_PATIENCE_S = 2.0
"""How long it may take while others can't be let in for it."""
HANDSHAKES_MAX = 256
BACKLOG = 512
"""Connections that the system keeps for us to take; a thousand slots may come at once."""
_RETRY_S = 0.1
_EVERYWHERE = ("", "0.0.0.0", "::")
_HOST = "which has to be one address of this machine (on Spark: spark.driver.host)"

_LOG = logging.getLogger(__name__)
_CLOSED = "it closed the connection"

Welcome = Callable[[Connected, Mapping[str, Any]], None]
"""Gets a connection that has proven itself, and its greeting, on a thread of its own, and owns it."""


@dataclass(slots=True)
class _Caller:
    """A connection in its handshake."""

    address: str
    since_s: float
    is_late: bool = False


class Listener:
    """Listens on one address from when it is made until it is closed."""

    def __init__(
        self,
        at: str | socket.socket,
        credentials: Credentials,
        name: str,
        welcome: Welcome,
        patience_s: float = PATIENCE_S,
        handshakes_max: int = HANDSHAKES_MAX,
    ) -> None:
        """`at`: an address, where any free port is taken, or a socket that listens already, wherever the user
        wished it to. `name`: of what is listened for, in logs and of threads. Raises UsageError if the
        address is not one of this machine."""
        self._name = name
        self._credentials = credentials
        self._welcome = welcome
        self._patience_s = patience_s
        self._handshakes_max = handshakes_max
        self._callers: dict[socket.socket, _Caller] = {}
        """Who is in his handshake, in the order in which they came."""
        self._changed = threading.Condition()
        self._is_closed = False
        self.turned_away: Counter[str] = Counter()
        """How many, by why."""
        self._listener = at if isinstance(at, socket.socket) else _listening(at)
        threading.Thread(target=self._accept_forever, name=f"onceflow-accept-{name}", daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        """Where to connect to, as numbers."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Listen no more, and hang up on whoever has not proven himself yet."""
        with self._changed:
            self._is_closed = True
            for connection in self._callers:
                _hang_up(connection)
            self._changed.notify_all()
            told = ", ".join(f"{count:,} because {reason}" for reason, count in self.turned_away.items())
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # close alone leaves a waiting accept waiting
        self._listener.close()
        if told:
            _LOG.info("turned away from the %s port: %s", self._name, told)

    # --- Accepting, on one thread -----------------------------------------------------------------------

    def _accept_forever(self) -> None:
        while not self._is_closed:
            try:
                self._listener.settimeout(self._wait_for_room())
                accepted, address = self._listener.accept()
            except TimeoutError:  # somebody is late
                continue
            except OSError as error:
                self._on_accept_failed(error)
            else:
                self._begin(accepted, f"{address[0]}:{address[1]}")

    def _wait_for_room(self) -> float | None:
        """Hang up on those who are late, until one more handshake may begin; how long until the next one is
        late."""
        with self._changed:
            while len(self._callers) >= self._handshakes_max and not self._is_closed:
                self._changed.wait(self._hang_up_on_late(min(FULL_PATIENCE_S, self._patience_s)))
            return self._hang_up_on_late(self._patience_s)

    def _hang_up_on_late(self, patience_s: float) -> float | None:
        now_s = time.monotonic()
        for connection, caller in self._callers.items():
            left_s = caller.since_s + patience_s - now_s
            if left_s > 0:
                return left_s
            caller.is_late = True
            _hang_up(connection)
        return None

    def _on_accept_failed(self, error: OSError) -> None:
        """The caller is gone again, or this process has no descriptor left: not for ever."""
        with self._changed:
            if not self._is_closed:
                self._count(f"it could not be let in ({error.strerror})", "somebody")
                self._changed.wait(_RETRY_S)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        try:
            accepted.settimeout(self._patience_s)
            if self._credentials.tls is not None:
                context = tls_context(self._credentials.tls, is_server=True)
                accepted = context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            thread = threading.Thread(
                target=self._greet, args=(accepted,), name=f"onceflow-greet-{self._name}", daemon=True
            )
            with self._changed:
                if self._is_closed:
                    accepted.close()
                    return
                self._callers[accepted] = _Caller(address, time.monotonic())
            thread.start()
        except (OSError, RuntimeError) as error:  # gone already; or no thread more can be had
            self._turn_away(accepted, error)

    # --- Greeting, on a thread for each -----------------------------------------------------------------

    def _greet(self, accepted: socket.socket) -> None:
        try:
            connection: Connected = accepted
            if isinstance(accepted, ssl.SSLSocket):
                accepted.do_handshake()
                connection = TlsSocket(accepted)
            greeting = answer(connection, self._credentials.secret)
        except (OSError, HandshakeError, ValueError, RecursionError) as error:  # the latter two: of JSON
            self._turn_away(accepted, error)
            return
        with self._changed:
            caller = self._callers.pop(accepted)
            self._changed.notify_all()
        if self._is_closed or caller.is_late:
            accepted.close()
        else:
            self._welcome(connection, greeting)

    def _turn_away(self, accepted: socket.socket, error: Exception) -> None:
        with self._changed:
            caller = self._callers.pop(accepted, None)
            if not self._is_closed:
                is_late = isinstance(error, TimeoutError) or (caller is not None and caller.is_late)
                reason = f"it took longer than {self._patience_s:g} s" if is_late else _reason(error)
                self._count(reason, caller.address if caller else "somebody")
            accepted.close()
            self._changed.notify_all()

    def _count(self, reason: str, address: str) -> None:
        self.turned_away[reason] += 1
        if self.turned_away[reason] == 1:  # a slot that is killed while it connects has closed, too
            _LOG.log(
                logging.INFO if reason == _CLOSED else logging.WARNING,
                "%s was turned away from the %s port: %s; from now on such callers are only counted",
                address,
                self._name,
                reason,
            )


def _listening(host: str) -> socket.socket:
    if host in _EVERYWHERE:
        raise UsageError(f"can't listen on {host!r}, {_HOST}")
    try:
        return socket.create_server((host, 0), backlog=BACKLOG)
    except OSError as error:
        raise UsageError(f"can't listen on {host!r}, {_HOST}: {error.strerror}") from error


def _reason(error: Exception) -> str:
    """Why somebody was turned away: one of few, whatever he did."""
    match error:
        case HandshakeError():
            return _CLOSED if "closed" in str(error) else str(error)
        case ssl.SSLEOFError() | ConnectionError():
            return _CLOSED
        case ssl.SSLError():
            return "it speaks no TLS, or has no certificate of this run"
        case OSError():
            return "its connection failed"
        case _:
            return "its greeting makes no sense"


def _hang_up(connection: socket.socket) -> None:
    """Ends what its thread waits for; that closes it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
