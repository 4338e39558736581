"""InputGate: merges channels, blocks aligned ones, forwards the lowest watermark.

Round robin over the channels, an element at a time. Records pass at once; with many channels each batch has
few rows, so those that are there already are passed on as one; and a batch with more rows than are asked for
is passed on in pieces, so that a barrier never waits long for a slow function. Watermarks are merged: the
gate's is the minimum over the channels that are neither idle nor ended, and never goes back. Barriers
are merged by `checkpoint/alignment.py`, which says which channels to leave unread until the rest have
delivered theirs. (Carbone et al., "Lightweight Asynchronous Snapshots", 2015.)

A barrier may also overtake: the task takes it as soon as it has come on one channel, and the rows before it
that were not given on are kept for the checkpoint, in `overtaken.py`; after a restore they come first of all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.exchange.channel import InputChannel
from onceflow.runtime.exchange.channel_watermarks import ChannelWatermarks
from onceflow.runtime.exchange.loop_tokens import TokenMerge
from onceflow.runtime.exchange.overtaken import Overtaken
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
        self._restored: deque[tuple[int, Records]] = deque()
        """(channel of the same edge, rows) that were in flight at the restored checkpoint."""
        self._rest: dict[int, Records] = {}
        """What is left of the batch that a channel gave last, if it had too many rows; by channel."""
        self._held: Element | None = None
        """What came, merged, behind records that were gathered: it is next."""
        self._came_from = 0
        """The channel of the records that were read last."""
        self._overtaken: Overtaken | None = None
        self.input = 0
        """The input of the records that `receive` gave last."""

    @property
    def has_right_input(self) -> bool:
        """Whether its operator has two inputs."""
        return any(self._inputs)

    def restore(self, channel: int, rows: Iterable[Records]) -> None:
        """Before the first `receive`: what was in flight on the edge of this channel. It comes before all
        that the channels have: so rows of a key keep their order, and no watermark comes before them."""
        self._restored += ((channel, records) for records in rows)

    def receive(self, rows_max: int = ROWS_MAX) -> Element | None:
        """The next element for the chain, or None if no unblocked channel has one now.

        Records have at most rows_max rows. A Watermark or Idle only if the gate's own changed; a Barrier when
        the task shall snapshot; EndOfInput when every channel has ended.
        """
        element, self._held = self._held, None
        if element is None:
            element = self._next(rows_max)
        self.input = self._inputs[self._came_from]
        if isinstance(element, Records) and len(element) < min(_FEW_ROWS, rows_max):
            return self._gathered(element, min(_ROWS_GATHERED, rows_max))
        return element

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint will not be: stop waiting for its barriers."""
        self._alignment.abort(checkpoint_id)
        if self._overtaken is not None and self._overtaken.checkpoint_id <= checkpoint_id:
            self._overtaken = None

    # --- Barriers that overtake ---------------------------------------------------------------------

    def overtake(self, checkpoint_id: int) -> bool:
        """True if the barrier of this checkpoint has come, and may be taken now: the task shall snapshot
        before it asks for anything else. Then `overtaken` has the rows that the barrier overtook."""
        come = [n for n, channel in enumerate(self._channels) if checkpoint_id in channel.waiting_barriers]
        if not self._alignment.may_overtake(checkpoint_id, come):
            return False
        awaited = self._alignment.awaited(checkpoint_id)
        self._alignment.overtake(checkpoint_id)
        rows = self._overtaken = Overtaken(checkpoint_id, len(self._channels), awaited)
        for channel, records in self._restored:
            rows.keep(channel, records)
        if isinstance(self._held, Records):
            rows.keep(self._came_from, self._held)
        for channel, records in self._rest.items():
            rows.keep(channel, records)
        return True

    def overtaken(self) -> Sequence[Sequence[Records]] | None:
        """The rows that were overtaken last, by channel, once; None: there are none, or the barrier has not
        come on all channels yet."""
        rows = self._overtaken
        if rows is None:
            return None
        for channel in rows.open_channels:
            if rows.checkpoint_id in self._channels[channel].waiting_barriers:
                rows.take_all(channel, self._channels[channel].waiting())
        if not rows.is_whole:
            return None
        self._overtaken = None
        return rows.by_channel

    # --- Elements in order --------------------------------------------------------------------------

    def _gathered(self, first: Records, rows_max: int) -> Records:
        """The rows of this batch and of all others that are there now, up to an element of another kind or
        records of the other input."""
        parts, rows, size = [first], len(first), first.nbytes
        while rows < rows_max and size < _BYTES_GATHERED:
            element = self._next(rows_max - rows)
            if not isinstance(element, Records) or self._inputs[self._came_from] != self.input:
                self._held = element
                break
            parts.append(element)
            rows += len(element)
            size += element.nbytes
        return concatenated(parts)

    def _next(self, rows_max: int) -> Element | None:
        if self._restored:
            return self._next_restored(rows_max)
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

    def _next_restored(self, rows_max: int) -> Records:
        self._came_from, records = self._restored.popleft()
        if len(records) > rows_max:
            self._restored.appendleft((self._came_from, records.slice(rows_max, len(records) - rows_max)))
            return records.slice(0, rows_max)
        return records

    def _take(self, channel: int, rows_max: int) -> Element | None:
        """What comes next on a channel; of a batch so many rows at most."""
        element: Element | None = self._rest.pop(channel, None)
        if element is None:
            element = self._channels[channel].receive()
            if self._overtaken is not None and element is not None:
                self._overtaken.take(channel, element)
        if isinstance(element, Records) and len(element) > rows_max:
            self._rest[channel] = element.slice(rows_max, len(element) - rows_max)
            return element.slice(0, rows_max)
        return element

    def _merge(self, channel: int, element: Element) -> Element | None:
        match element:
            case Records():
                self._came_from = channel
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
