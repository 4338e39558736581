"""The two ends of a channel between processes. Called by the slot's thread only, on a non-blocking socket.

The receiver reads all that comes, and says on the way back how much of it was taken, and how much may be on
its way (as Flink's credits do). So what a barrier waits behind is in the receiver's memory and bounded there:
neither a queue at the sender nor the buffers of two kernels hold more than what is just being moved.
"""

from __future__ import annotations

import selectors
import struct
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Retryable
from onceflow.runtime.exchange.channel import CAPACITY_BYTES
from onceflow.runtime.exchange.channel_bound import ChannelBound
from onceflow.runtime.exchange.frames import FRAME_BYTES_MAX, HEADER, FrameCodec
from onceflow.runtime.records import Barrier, Element
from onceflow.runtime.sockets.tls_socket import Connected, TlsSocket

_PIECES_MAX = 16
"""The parts of frames that are given to the system at once, at most."""
_CREDIT: Final = struct.Struct("<QQ?")
"""Bytes of frames that were taken so far; the bound; whether it is lower than for a receiver that is fast."""
_TOLD_EACH: Final = 4
"""The sender hears of each quarter of the bound that was taken."""


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
        bound: ChannelBound | None = None,
    ) -> None:
        """`bound`: as the receiver's is before it has said anything."""
        bound = bound or ChannelBound(CAPACITY_BYTES, None)
        self._connection = connection
        self._codec = codec
        self._selector = selector
        self._peer = peer
        self.bound_bytes, self.is_slow = bound.bytes, not bound.is_most
        self._unsent: deque[memoryview] = deque()
        self._credit = b""
        """The beginning of what the receiver says next."""
        self.sent_bytes = 0
        self._taken_bytes = 0
        selector.register(connection, selectors.EVENT_READ, self)

    @property
    def has_room(self) -> bool:
        return self.sent_bytes - self._taken_bytes < self.bound_bytes

    @property
    def unsent_bytes(self) -> int:
        """What the socket has not taken yet."""
        return sum(map(len, self._unsent))

    def send(self, element: Element) -> None:
        was_idle = not self._unsent
        for part in self._codec.encode(element):
            view = memoryview(part)
            self._unsent.append(view)
            self.sent_bytes += len(view)
        if was_idle and not self._flush():
            self._selector.modify(self._connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def on_ready(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._read_credit()
        if events & selectors.EVENT_WRITE and self._flush():
            self._selector.modify(self._connection, selectors.EVENT_READ, self)

    def _read_credit(self) -> None:
        """Take what the receiver said; the last that came counts."""
        try:
            while content := self._connection.recv(_CREDIT.size * 64):
                self._credit += content
        except BlockingIOError:
            whole = len(self._credit) // _CREDIT.size * _CREDIT.size
            if whole:
                last = _CREDIT.unpack_from(self._credit, whole - _CREDIT.size)
                self._taken_bytes, self.bound_bytes, self.is_slow = last
                self._credit = self._credit[whole:]
        except OSError as error:
            raise PeerLostError(f"{self._peer} is gone: {error}") from error
        else:
            raise PeerLostError(f"{self._peer} is gone: it closed its channel")

    def _flush(self) -> bool:
        """Send until the socket is full. True if nothing is left."""
        while self._unsent:
            try:
                sent = self._connection.sendmsg(list(islice(self._unsent, _PIECES_MAX)))
            except BlockingIOError:
                return False
            except OSError as error:
                raise PeerLostError(f"{self._peer} is gone: {error}") from error
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.popleft())
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        return True


class RemoteInput:
    """The receiver's end. Reads all frames into memory: the sender sends no more than it was allowed to."""

    def __init__(
        self,
        connection: Connected,
        codec: FrameCodec,
        selector: selectors.BaseSelector,
        peer: str,
        bound: ChannelBound | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`clock`: needed for a bound that follows the receiver."""
        self._connection = connection
        self._is_tls = isinstance(connection, TlsSocket)
        self._codec = codec
        self._selector = selector
        self._peer = peer
        self._bound = bound or ChannelBound(CAPACITY_BYTES, None)
        self._clock = clock
        self._elements: deque[tuple[Element, int]] = deque()
        self._queued_bytes = 0
        self.waiting_barriers: deque[int] = deque()
        self._taken_bytes = 0
        self._told = (0, self._bound.bytes)
        """What was taken, and the bound, when the sender was told last."""
        self._untold = b""
        """What the socket has not taken of it."""
        self._header = bytearray(HEADER.size)
        self._frame: bytearray | None = None
        self._filled = 0
        self._kind = self._meta_length = 0
        selector.register(connection, selectors.EVENT_READ, self)

    def receive(self) -> Element | None:
        if not self._elements:
            if self._clock is not None and self._bound.is_at_work:
                self._bound.on_empty(self._clock.monotonic_ms())
            return None
        element, size = self._elements.popleft()
        self._queued_bytes -= size
        self._taken_bytes += size
        if isinstance(element, Barrier):
            self.waiting_barriers.popleft()
        if self._clock is not None:
            self._bound.on_taken(size, self._queued_bytes, self._clock.monotonic_ms())
        taken, bound = self._told
        if self._taken_bytes - taken >= min(bound, self._bound.bytes) // _TOLD_EACH:
            self._tell()
        return element

    def waiting(self) -> Iterable[Element]:
        return (element for element, _ in self._elements)

    def on_ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE and self._flush():
            self._selector.modify(self._connection, selectors.EVENT_READ, self)
            self._tell()
        if not events & selectors.EVENT_READ:
            return
        try:
            while self._read_some():
                pass
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerLostError(f"{self._peer} is gone: {error}") from error

    def _tell(self) -> None:
        """Tell the sender how much was taken; once what it was told before is on its way."""
        if self._untold:
            return
        self._told = (self._taken_bytes, self._bound.bytes)
        self._untold = _CREDIT.pack(*self._told, not self._bound.is_most)
        if not self._flush():
            self._selector.modify(self._connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def _flush(self) -> bool:
        try:
            sent = self._connection.send(self._untold)
        except BlockingIOError:
            return False
        except OSError as error:
            raise PeerLostError(f"{self._peer} is gone: {error}") from error
        self._untold = self._untold[sent:]
        return not self._untold

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
                return self._is_tls  # it gives one record at a time; another one may be there
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
        size = HEADER.size + len(frame)
        self._elements.append((element, size))
        self._queued_bytes += size
        if isinstance(element, Barrier):
            self.waiting_barriers.append(element.checkpoint_id)
