"""InputGate: merges channels, blocks aligned ones, forwards the lowest watermark.

Round robin over the channels, an element at a time. Records pass at once; with many channels each batch has
few rows, so those that are there already are passed on as one; and a batch with more rows than are asked for
is passed on in pieces, so that a barrier never waits long for a slow function. Watermarks are merged: the
gate's is the minimum over the channels that are neither idle nor ended, and never goes back. Barriers
are merged by `checkpoint/alignment.py`, which says which channels to leave unread until the rest have
delivered theirs. (Carbone et al., "Lightweight Asynchronous Snapshots", 2015.)
"""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.exchange.channel import InputChannel
from onceflow.runtime.exchange.channel_watermarks import ChannelWatermarks
from onceflow.runtime.exchange.loop_tokens import TokenMerge
from onceflow.runtime.records import (
    Barrier,
    Element,
    EndOfInput,
    Idle,
    LoopToken,
    Records,
    Watermark,
    concatenated,
)

ROWS_MAX = 1 << 31
"""More than any batch has."""
_FEW_ROWS = 2_048
"""A batch with fewer is worth gathering: what an operator does for each call costs more than copying them."""
_ROWS_GATHERED = 8_192
_BYTES_GATHERED = 1 << 20


class InputGate:
    """The input of a task that is no source. One thread calls it."""

    def __init__(
        self,
        channels: Sequence[InputChannel],
        alignment: Alignment,
        inputs: Sequence[int] | None = None,
        is_timed: Sequence[bool] | None = None,
    ) -> None:
        """`inputs`: the input of the operator that each channel is of; None: there is one. `is_timed`:
        whether a channel has event time; one that has none holds no watermark back. None: all have, or none.
        """
        assert channels, "a gate has at least one channel"
        self._channels = channels
        self._alignment = alignment
        self._inputs = [0] * len(channels) if inputs is None else list(inputs)
        self._watermarks = ChannelWatermarks(len(channels), is_timed)
        self._tokens = TokenMerge(len(channels))
        self._next_channel = 0
        self._rest: dict[int, Records] = {}
        """What is left of the batch that a channel gave last, if it had too many rows; by channel."""
        self._held: Element | None = None
        """What came, merged, behind records that were gathered: it is next."""
        self._came_from = 0
        """The input of the records that were read last."""
        self.input = 0
        """The input of the records that `receive` gave last."""

    @property
    def has_right_input(self) -> bool:
        """Whether its operator has two inputs."""
        return any(self._inputs)

    def receive(self, rows_max: int = ROWS_MAX) -> Element | None:
        """The next element for the chain, or None if no unblocked channel has one now.

        Records have at most rows_max rows. A Watermark or Idle only if the gate's own changed; a Barrier when
        the task shall snapshot; EndOfInput when every channel has ended.
        """
        element, self._held = self._held, None
        if element is None:
            element = self._next(rows_max)
        self.input = self._came_from
        if isinstance(element, Records) and len(element) < min(_FEW_ROWS, rows_max):
            return self._gathered(element, min(_ROWS_GATHERED, rows_max))
        return element

    def _gathered(self, first: Records, rows_max: int) -> Records:
        """The rows of this batch and of all others that are there now, up to an element of another kind or
        records of the other input."""
        parts, rows, size = [first], len(first), first.nbytes
        while rows < rows_max and size < _BYTES_GATHERED:
            element = self._next(rows_max - rows)
            if not isinstance(element, Records) or self._came_from != self.input:
                self._held = element
                break
            parts.append(element)
            rows += len(element)
            size += element.nbytes
        return concatenated(parts)

    def _next(self, rows_max: int) -> Element | None:
        if (idle := self._watermarks.settle()) is not None:
            return idle
        if (token := self._tokens.merged()) is not None:
            return token
        for _ in range(len(self._channels)):
            channel = self._next_channel
            self._next_channel = (channel + 1) % len(self._channels)
            if channel in self._alignment.blocked:
                continue
            while (element := self._take(channel, rows_max)) is not None:
                merged = self._merge(channel, element)
                if merged is not None:
                    return merged
                if channel in self._alignment.blocked:
                    break
        return None

    def _take(self, channel: int, rows_max: int) -> Element | None:
        """What comes next on a channel; of a batch so many rows at most."""
        element: Element | None = self._rest.pop(channel, None)
        if element is None:
            element = self._channels[channel].receive()
        if isinstance(element, Records) and len(element) > rows_max:
            self._rest[channel] = element.slice(rows_max, len(element) - rows_max)
            return element.slice(0, rows_max)
        return element

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint will not be: stop waiting for its barriers."""
        self._alignment.abort(checkpoint_id)

    def _merge(self, channel: int, element: Element) -> Element | None:
        match element:
            case Records():
                self._came_from = self._inputs[channel]
                return element
            case Watermark(time_ms):
                return self._watermarks.advance(channel, time_ms)
            case Idle():
                return self._watermarks.set_idle(channel)
            case EndOfInput():
                self._tokens.end(channel)
                return self._watermarks.end(channel)
            case LoopToken():
                self._tokens.take(channel, element)
                return self._tokens.merged()
            case Barrier():
                return self._alignment.on_barrier(channel, element).snapshot
