"""ProduceConnection: one socket to one broker, on which several requests may wait for their answers."""

from __future__ import annotations

import contextlib
import select
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.broker_socket import open_broker, read_frame
from onceflow.connectors.kafka.protocol.transaction_messages import VERSIONS, Node
from onceflow.connectors.kafka.protocol.wire import ProtocolError

_PIECES_AT_ONCE = 512
"""Fewer than any system takes in one call."""

Note = TypeVar("Note")


class ProduceConnection(Generic[Note]):
    """One thread at a time. Every call may raise OSError (a TimeoutError after `timeout_s` without a byte, or
    as much later as the broker has said that it is mute) or ProtocolError; then it is good for `close`
    only."""

    def __init__(self, node: Node, access: BrokerAccess, timeout_s: float, mute_s_max: float = 0.0) -> None:
        """See open_broker. `mute_s_max`: no broker is waited for longer than this for its being mute."""
        self._client_id = access.client_id
        self._timeout_s = timeout_s
        self._mute_s_max = mute_s_max
        self._mute_until_s = 0.0
        self._muted_s = 0.0
        self._socket, self._good_until_s = open_broker(node.host, node.port, access, VERSIONS)
        self._correlation_id = 0
        self._waiting: deque[tuple[int, Note]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        return len(self._waiting)

    def wait_at_most(self, timeout_s: float) -> None:
        """Wait at most so long for each answer from now on, however mute the broker is."""
        self._timeout_s, self._mute_s_max, self._mute_until_s = timeout_s, 0.0, 0.0

    def mute(self, throttle_ms: int) -> None:
        """The broker has said that it will read nothing more from here for so long."""
        if throttle_ms > 0:
            self._muted_s = throttle_ms / 1000
            mute_s = min(self._muted_s, self._mute_s_max)
            self._mute_until_s = max(self._mute_until_s, time.monotonic() + mute_s)

    def is_gone(self) -> bool:
        """Whether the broker has closed it, or has said something unasked; only while nothing waits."""
        poll = select.poll()  # select() refuses sockets whose number is above 1,023
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0)) or time.monotonic() > self._good_until_s

    def send(self, request: Callable[[int, str], bytes | Sequence[bytes | memoryview]], note: Note) -> None:
        """`request(correlation id, client id)`: what to send, in pieces or whole. `note` comes back with the
        answer."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        made = request(self._correlation_id, self._client_id)
        self._waiting.append((self._correlation_id, note))
        pieces = deque(memoryview(piece) for piece in ([made] if isinstance(made, bytes) else made))
        with self._patient():
            while pieces:
                sent = self._socket.sendmsg([pieces[n] for n in range(min(len(pieces), _PIECES_AT_ONCE))])
                while pieces and sent >= len(pieces[0]):
                    sent -= len(pieces.popleft())
                if sent:
                    pieces[0] = pieces[0][sent:]

    def receive(self) -> tuple[bytes, Note]:
        """The next answer, and its request's note. Waits for it; while it is not there, it is waited for."""
        correlation_id, note = self._waiting[0]
        with self._patient():
            frame = read_frame(self._socket)
        if frame[:4] != correlation_id.to_bytes(4, "big"):
            raise ProtocolError("an answer is to another request than the next one")
        self._waiting.popleft()
        return frame, note

    def ask(self, request: Callable[[int, str], bytes], note: Note) -> bytes:
        """The answer to a request, when nothing else waits."""
        self.send(request, note)
        return self.receive()[0]

    def close(self) -> None:
        self._socket.close()

    @contextlib.contextmanager
    def _patient(self) -> Iterator[None]:
        """A mute broker is not silent: it gets the time that it takes for itself, and the usual one then."""
        mute_s = self._mute_until_s - time.monotonic() if self._mute_until_s else 0.0
        self._socket.settimeout(self._timeout_s + max(0.0, mute_s))
        try:
            yield
        except TimeoutError as error:
            if mute_s <= 0.0:
                raise
            raise TimeoutError(
                f"{error}: the broker throttles this client for {self._muted_s:.0f} s (a quota, such as "
                "producer_byte_rate): raise it, or make transaction_timeout longer"
            ) from error
