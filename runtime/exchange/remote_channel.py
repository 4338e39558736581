"""The two ends of a channel between processes. Called by the slot's thread only, on a non-blocking socket."""

from __future__ import annotations

import selectors
from collections import deque
from itertools import islice

from onceflow.runtime.errors import Retryable
from onceflow.runtime.exchange.channel import CAPACITY_BYTES, size_of
from onceflow.runtime.exchange.frames import FRAME_BYTES_MAX, HEADER, FrameCodec
from onceflow.runtime.records import Element
from onceflow.runtime.sockets.tls_socket import Connected, TlsSocket

_PIECES_MAX = 16
"""The parts of frames that are given to the system at once, at most."""


class PeerLostError(Retryable):
    """The slot on the other side of a channel is gone; the attempt can't go on."""


class RemoteOutput:
    """The sender's end. Sends at once what the socket takes, queues the rest."""

    def __init__(
        self,
        connection: Connected,
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
        self.unsent_bytes = 0
        """What the socket has not taken yet."""

    @property
    def has_room(self) -> bool:
        return self.unsent_bytes < self._capacity_bytes

    def send(self, element: Element) -> None:
        was_idle = not self._unsent
        for part in self._codec.encode(element):
            view = memoryview(part)
            self._unsent.append(view)
            self.unsent_bytes += len(view)
        if was_idle and not self._flush():
            self._selector.register(self._connection, selectors.EVENT_WRITE, self)

    def on_ready(self, events: int) -> None:
        if self._flush():
            self._selector.unregister(self._connection)

    def _flush(self) -> bool:
        """Send until the socket is full. True if nothing is left."""
        while self._unsent:
            try:
                sent = self._connection.sendmsg(list(islice(self._unsent, _PIECES_MAX)))
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerLostError(f"{self._peer} is gone: {error}") from error
            self.unsent_bytes -= sent
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        return True


class RemoteInput:
    """The receiver's end. Reads frames into memory while there is room, else leaves them in the socket."""

    def __init__(
        self,
        connection: Connected,
        codec: FrameCodec,
        selector: selectors.BaseSelector,
        peer: str,
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> None:
        self._connection = connection
        self._tls = connection if isinstance(connection, TlsSocket) else None
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
        while self._queued_bytes < self._capacity_bytes or self._hides_bytes:
            try:
                if not self._read_some():
                    return
            except BlockingIOError:
                return
            except OSError as error:
                raise PeerLostError(f"{self._peer} is gone: {error}") from error
        self._selector.unregister(self._connection)
        self._is_registered = False

    @property
    def _hides_bytes(self) -> bool:
        """There is a rest of a TLS record, 16 KiB at most. It has to be read though there is no room for it:
        later no selector would tell of it."""
        return self._tls is not None and self._tls.hidden_bytes > 0

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
                return self._tls is not None  # it gives one record at a time; another one may be there
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
