"""ChannelWatermarks: the watermark of a gate, from those of its channels. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    EndOfInput,
    Idle,
    Watermark,
)


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
