"""RecordWriter: the sending side of an edge; says which subtask gets which records.

Watermarks, barriers and ends go to every channel; records to the owner of their key, to the subtask of
the same number, or to each subtask in turn. Rows go without their origin unless the edge is one that has it:
it does not cross to other slots then, and a gate puts rows of several channels into one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from onceflow.runtime.exchange.channel import CAPACITY_BYTES, OutputChannel
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.records import Element, Records


class RecordWriter(Protocol):
    """One edge as an upstream task sees it."""

    @property
    def has_room(self) -> bool:
        """Every channel has: a task works only if all that it may produce can go out."""
        ...

    @property
    def slow_bytes(self) -> int | None:
        """How much may be on its way to all receivers, if one of them is slow. None: all are fast."""
        ...

    @property
    def sent_bytes(self) -> int: ...

    def emit(self, records: Records) -> None: ...

    def broadcast(self, element: Element) -> None:
        """A control element, to all downstream subtasks."""
        ...


class ForwardWriter:
    """Subtask i to subtask i."""

    def __init__(self, channel: OutputChannel, with_origin: bool = True) -> None:
        self._channel = channel
        self._with_origin = with_origin

    @property
    def has_room(self) -> bool:
        return self._channel.has_room

    @property
    def slow_bytes(self) -> int | None:
        return slow_bytes([self._channel])

    @property
    def sent_bytes(self) -> int:
        return self._channel.sent_bytes

    def emit(self, records: Records) -> None:
        self._channel.send(_as_said(records, self._with_origin))

    def broadcast(self, element: Element) -> None:
        self._channel.send(element)


class RebalanceWriter:
    """Batch by batch to each subtask in turn."""

    def __init__(self, channels: Sequence[OutputChannel], first: int, with_origin: bool = True) -> None:
        self._channels = channels
        self._with_origin = with_origin
        self._next = first % len(channels)

    @property
    def has_room(self) -> bool:
        return all(channel.has_room for channel in self._channels)

    @property
    def slow_bytes(self) -> int | None:
        return slow_bytes(self._channels)

    @property
    def sent_bytes(self) -> int:
        return sum(channel.sent_bytes for channel in self._channels)

    def emit(self, records: Records) -> None:
        self._channels[self._next].send(_as_said(records, self._with_origin))
        self._next = (self._next + 1) % len(self._channels)

    def broadcast(self, element: Element) -> None:
        for channel in self._channels:
            channel.send(element)


class BroadcastWriter:
    """All records to each subtask."""

    def __init__(self, channels: Sequence[OutputChannel], with_origin: bool = True) -> None:
        self._channels = channels
        self._with_origin = with_origin

    @property
    def has_room(self) -> bool:
        return all(channel.has_room for channel in self._channels)

    @property
    def slow_bytes(self) -> int | None:
        return slow_bytes(self._channels)

    @property
    def sent_bytes(self) -> int:
        return sum(channel.sent_bytes for channel in self._channels)

    def emit(self, records: Records) -> None:
        self.broadcast(_as_said(records, self._with_origin))

    def broadcast(self, element: Element) -> None:
        for channel in self._channels:
            channel.send(element)


class KeyedWriter:
    """Each record to the subtask that owns its key group."""

    def __init__(
        self,
        channels: Sequence[OutputChannel],
        columns: tuple[str, ...],
        max_parallelism: int,
        with_origin: bool = True,
    ) -> None:
        self._channels = channels
        self._with_origin = with_origin
        self._partitioner = Partitioner(columns, max_parallelism, len(channels))

    @property
    def has_room(self) -> bool:
        return all(channel.has_room for channel in self._channels)

    @property
    def slow_bytes(self) -> int | None:
        return slow_bytes(self._channels)

    @property
    def sent_bytes(self) -> int:
        return sum(channel.sent_bytes for channel in self._channels)

    def emit(self, records: Records) -> None:
        for subtask, part in self._partitioner.split(_as_said(records, self._with_origin)):
            self._channels[subtask].send(part)

    def broadcast(self, element: Element) -> None:
        for channel in self._channels:
            channel.send(element)


def _as_said(records: Records, with_origin: bool) -> Records:
    return records if with_origin or records.origin is None else replace(records, origin=None)


def slow_bytes(channels: Sequence[OutputChannel]) -> int | None:
    """What the channels may hold together, if one of them is slow."""
    if not any(channel.is_slow for channel in channels):
        return None
    return sum(min(channel.bound_bytes, CAPACITY_BYTES) for channel in channels)
