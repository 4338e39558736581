"""BrokerConnection: one socket to one broker, one request at a time, that never waits once it is open."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.broker_socket import PREFIX_BYTES, frame_bytes, open_broker
from onceflow.connectors.kafka.protocol.fetch_messages import FETCH, VERSION

_SILENT_S = 5.0

Frame = npt.NDArray[np.uint8]
"""An answer, without its length."""


class BrokerConnection:
    """Used by one thread. Every call may raise OSError or ProtocolError; then it is good for `close` only."""

    def __init__(self, host: str, port: int, access: BrokerAccess, silent_s_max: float = _SILENT_S) -> None:
        """See open_broker. `silent_s_max`: how long a broker may let us wait for more of an answer."""
        self._silent_s_max = silent_s_max
        self._prefix = bytearray(PREFIX_BYTES)
        self._prefix_got = 0
        self._frame: Frame | None = None
        self._frame_got = 0
        self._rest = memoryview(b"")  # of the request, not sent yet
        self._asked_at_s: float | None = None
        self._spare: Frame | None = None
        self._socket, self._good_until_s = open_broker(host, port, access, {FETCH: VERSION})
        self._socket.setblocking(False)

    @property
    def is_waiting(self) -> bool:
        """Whether a request has been sent and not been answered."""
        return self._asked_at_s is not None

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Send a request. Only if no answer is waited for."""
        assert not self.is_waiting, "one request at a time"
        self._asked_at_s = time.monotonic()
        if self._asked_at_s > self._good_until_s:
            raise ConnectionResetError("the login at the broker ends")
        self._rest = memoryview(request)
        self._send_on()

    def receive(self) -> Frame | None:
        """The answer, if all of it is there. Raises TimeoutError if nothing came for `silent_s_max`."""
        if not self.is_waiting:
            return None
        self._send_on()
        while self._frame is None or self._frame_got < len(self._frame):
            if self._frame is None:
                got = self._read(memoryview(self._prefix)[self._prefix_got :])
                self._prefix_got += got
                if self._prefix_got == PREFIX_BYTES:
                    self._begin_frame()
            else:
                got = self._read(self._frame.data[self._frame_got :])
                self._frame_got += got
            if not got:
                return None
        frame, self._frame = self._frame, None
        self._prefix_got = self._frame_got = 0
        self._asked_at_s = None
        return frame

    def give_back(self, frame: Frame) -> None:
        """Give back a frame: its memory may be written again."""
        owner: Any = frame.base if frame.base is not None else frame
        if self._spare is None or len(owner) > len(self._spare):
            self._spare = owner

    def close(self) -> None:
        self._socket.close()

    def _send_on(self) -> None:
        while self._rest:
            try:
                self._rest = self._rest[self._socket.send(self._rest) :]
            except BlockingIOError:
                return

    def _read(self, target: memoryview) -> int:
        """How many bytes came; 0: none are there now."""
        try:
            got = self._socket.recv_into(target)
        except BlockingIOError:
            assert self._asked_at_s is not None, "only while an answer is waited for"
            if time.monotonic() - self._asked_at_s > self._silent_s_max:
                raise TimeoutError(f"the broker has not answered for {self._silent_s_max:g} s") from None
            return 0
        if not got:
            raise ConnectionResetError("the broker closed the connection")
        self._asked_at_s = time.monotonic()
        return got

    def _begin_frame(self) -> None:
        length = frame_bytes(self._prefix)
        spare, self._spare = self._spare, None
        if spare is None or len(spare) < length:
            spare = np.empty(length, np.uint8)
        self._frame = spare[:length]
