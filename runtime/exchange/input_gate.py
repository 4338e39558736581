"""InputGate: merges channels, blocks aligned ones, forwards the lowest watermark.

Round robin over the channels, an element at a time. Records pass at once; with many channels each batch has
few rows, so those that are there already are passed on as one. Watermarks are merged: the
gate's is the minimum over the channels that are neither idle nor ended, and never goes back. Barriers
are merged by `checkpoint/alignment.py`, which says which channels to leave unread until the rest have
delivered theirs. (Carbone et al., "Lightweight Asynchronous Snapshots", 2015.)
"""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.exchange.channel import InputChannel
from onceflow.runtime.exchange.loop_tokens import TokenMerge
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    LoopToken,
    Records,
    Watermark,
    concatenated,
)

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

    def receive(self) -> Element | None:
        """The next element for the chain, or None if no unblocked channel has one now.

        A Watermark or Idle only if the gate's own changed; a Barrier when the task shall snapshot;
        EndOfInput when every channel has ended.
        """
        element, self._held = self._held, None
        if element is None:
            element = self._next()
        self.input = self._came_from
        if isinstance(element, Records) and len(element) < _FEW_ROWS:
            return self._gathered(element)
        return element

    def _gathered(self, first: Records) -> Records:
        """The rows of this batch and of all others that are there now, up to an element of another kind or
        records of the other input."""
        parts, rows, size = [first], len(first), first.nbytes
        while rows < _ROWS_GATHERED and size < _BYTES_GATHERED:
            element = self._next()
            if not isinstance(element, Records) or self._came_from != self.input:
                self._held = element
                break
            parts.append(element)
            rows += len(element)
            size += element.nbytes
        return concatenated(parts)

    def _next(self) -> Element | None:
        if (idle := self._watermarks.settle()) is not None:
            return idle
        if (token := self._tokens.merged()) is not None:
            return token
        for _ in range(len(self._channels)):
            channel = self._next_channel
            self._next_channel = (channel + 1) % len(self._channels)
            if channel in self._alignment.blocked:
                continue
            while (element := self._channels[channel].receive()) is not None:
                merged = self._merge(channel, element)
                if merged is not None:
                    return merged
                if channel in self._alignment.blocked:
                    break
        return None

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


class ChannelWatermarks:
    """The minimum over channels; pure.

    A channel at the end of event time holds nothing back; what the others hold back decides. While
    those are all idle the lowest of them decides, because they may come back; an idle channel that never
    had a watermark holds nothing back.
    """

    def __init__(self, channels: int, is_timed: Sequence[bool] | None = None) -> None:
        """`is_timed`: whether a channel has event time; one that has none is as if it were at its end."""
        timed = is_timed or [True] * channels
        self._time_ms = [WATERMARK_MIN_MS if each else WATERMARK_MAX_MS for each in timed]
        self._is_idle = [False] * channels
        self._has_ended = [False] * channels
        self._current_ms = WATERMARK_MIN_MS
        self._said_idle = False

    def advance(self, channel: int, time_ms: int) -> Watermark | Idle | None:
        """A channel's watermark; also ends its idleness."""
        self._time_ms[channel] = max(self._time_ms[channel], time_ms)
        self._is_idle[channel] = False
        return self._lowest()

    def set_idle(self, channel: int) -> Watermark | Idle | None:
        self._is_idle[channel] = True
        return self._lowest()

    def settle(self) -> Idle | None:
        """What is still to be said after the watermark that was given last."""
        is_idle = any(self._is_idle) and all(
            idle or time_ms == WATERMARK_MAX_MS
            for time_ms, idle in zip(self._time_ms, self._is_idle, strict=True)
        )
        if not is_idle or self._said_idle:
            return None
        self._said_idle = True
        return Idle()

    def end(self, channel: int) -> Watermark | Idle | EndOfInput | None:
        self._has_ended[channel] = True
        self._is_idle[channel] = False
        self._time_ms[channel] = WATERMARK_MAX_MS
        return EndOfInput() if all(self._has_ended) else self._lowest()

    def _lowest(self) -> Watermark | Idle | None:
        active = [t for t, idle in zip(self._time_ms, self._is_idle, strict=True) if not idle]
        lowest_ms = min(active, default=WATERMARK_MAX_MS)
        if lowest_ms == WATERMARK_MAX_MS and any(self._is_idle):
            idle = [t for t, idle in zip(self._time_ms, self._is_idle, strict=True) if idle]
            lowest_ms = min((t for t in idle if t > WATERMARK_MIN_MS), default=WATERMARK_MIN_MS)
            if lowest_ms > self._current_ms:
                self._current_ms, self._said_idle = lowest_ms, False
                return Watermark(lowest_ms)  # `settle` says Idle behind it
            already, self._said_idle = self._said_idle, True
            return None if already else Idle()
        was_idle, self._said_idle = self._said_idle, False
        if lowest_ms <= self._current_ms and not was_idle:
            return None
        self._current_ms = max(self._current_ms, lowest_ms)
        return Watermark(self._current_ms)
