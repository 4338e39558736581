"""NifiDeliveries: what an output port of NiFi gives, in transactions that are held until all is counted."""

from __future__ import annotations

import collections
from dataclasses import dataclass

from onceflow.connectors.acknowledged.messages import Message
from onceflow.connectors.acknowledged.threaded_deliveries import ThreadedDeliveries
from onceflow.connectors.message_fields import attribute
from onceflow.connectors.nifi.flow_files import UUID, FlowFile
from onceflow.connectors.nifi.output_port import NifiPlace, OutputPort, Received
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import Retryable

_PAUSE_S, _PAUSE_MAX_S = 0.05, 1.0
"""Between two looks, where there was nothing: longer and longer."""


@dataclass(slots=True)
class _Held:
    """A transaction whose flow files were delivered."""

    received: Received
    last_tag: int
    received_ms: float
    extended_ms: float


class NifiDeliveries(ThreadedDeliveries):
    """Deliveries of one output port of one node. One thread makes all requests: it receives, it confirms a
    transaction when all of its flow files are acknowledged, and until then lets it live on."""

    def __init__(
        self, url: str, place: NifiPlace, prefetch: int, quiet_ms: int | None, context: ReaderContext
    ) -> None:
        """`prefetch`: with how many unconfirmed flow files no further transaction is begun."""
        super().__init__(url, context)
        self._url, self._place, self._prefetch, self._quiet_ms = url, place, prefetch, quiet_ms
        self._held: collections.deque[_Held] = collections.deque()
        self._tag = 0
        self._pause_s = _PAUSE_S
        self._told_tag = 0
        """Up to which tag all is acknowledged. Under `_changed`, as what is held."""
        self._answered_ms = 0.0
        self._came_ms = context.clock.monotonic_ms()
        self.start()

    @property
    def alive_ms(self) -> float:
        """See Deliveries. What was acknowledged before the oldest transaction that is held had come is
        confirmed; what was since may be a part of it."""
        with self._changed:
            return min(self._answered_ms, self._held[0].received_ms) if self._held else self._answered_ms

    def acknowledge(self, last_tag: int) -> None:
        """See Deliveries."""
        with self._changed:
            self._told_tag = last_tag
            self._changed.notify_all()

    # --- The thread ---

    def _serve(self) -> None:
        port = OutputPort(self._url, self._place)
        try:
            self._serve_port(port)
        finally:
            for held in self._held:
                port.cancel(held.received.transaction_id)
            port.close()

    def _serve_port(self, port: OutputPort) -> None:
        while not self._closed.is_set():
            self._confirm(port)
            self._extend(port)
            is_full = sum(len(held.received.flow_files) for held in self._held) >= self._prefetch
            if is_full or not self._receive(port):
                self._pause()
        try:
            self._confirm(port)
        except Retryable:
            return  # what was not confirmed comes again, and is known

    def _pause(self) -> None:
        with self._changed:
            if not self._is_confirmable and not self._closed.is_set():
                lives_s = min((held.received.ttl_ms / 6_000 for held in self._held), default=_PAUSE_MAX_S)
                self._changed.wait(min(self._pause_s, lives_s))
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)

    @property
    def _is_confirmable(self) -> bool:
        return bool(self._held) and self._held[0].last_tag <= self._told_tag

    def _receive(self, port: OutputPort) -> bool:
        """Whether a transaction brought something."""
        received = port.receive()
        now_ms = self._answered_ms = self._clock.monotonic_ms()
        if not received.flow_files:
            quiet_ms = self._quiet_ms
            if quiet_ms is not None and now_ms - self._came_ms >= max(quiet_ms, 2 * received.ttl_ms):
                self._is_at_end = True
                self._wake()
            return False
        messages = [self._message(flow_file) for flow_file in received.flow_files]
        with self._changed:
            self._held.append(_Held(received, self._tag, now_ms, now_ms))
        self._came_ms, self._is_at_end, self._pause_s = now_ms, False, _PAUSE_S
        self._messages += messages
        self._wake()
        return True

    def _message(self, flow_file: FlowFile) -> Message:
        self._tag += 1
        known = {attribute(name): value for name, value in flow_file.attributes.items()}
        return Message(flow_file.attributes.get(UUID), flow_file.content, self._tag, False, known)

    def _confirm(self, port: OutputPort) -> None:
        while self._is_confirmable:
            port.confirm(self._held[0].received)
            with self._changed:
                self._answered_ms = self._clock.monotonic_ms()
                self._held.popleft()

    def _extend(self, port: OutputPort) -> None:
        now_ms = self._clock.monotonic_ms()
        for held in self._held:
            if now_ms - held.extended_ms >= held.received.ttl_ms / 3:
                held.extended_ms = now_ms
                port.extend(held.received)
