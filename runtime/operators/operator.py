"""Operator: what the engine calls for each element of a stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Json
from onceflow.runtime.records import Records

MAIN = ""
"""The tag of an operator's main output; side outputs have names."""


class Output(Protocol):
    """Where an operator sends rows; calls the next operator in the same call stack."""

    def emit(self, records: Records, tag: str = MAIN) -> None: ...


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator gets when it is opened."""

    uid: str
    subtask: int
    parallelism: int
    max_parallelism: int
    key_groups: range
    """The key groups this subtask owns; contiguous. See exchange/key_groups.py."""
    clock: Clock
    count_late: Callable[[int], None] = lambda rows: None
    """Report late rows: for the live line, the metrics and the job's last line."""


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The frozen state of one operator subtask at a barrier, or what it is restored from.

    Each table's first column is `key_group` (uint16, not null); the engine writes the rows sorted by
    it and hands back, at restore, only the rows of the key groups that the new subtask owns. `meta` is
    small and JSON, the same for all key groups of the state. Tables are immutable: an operator that
    goes on must not write into their buffers.
    """

    key_groups: range
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    meta: Mapping[str, Json] = field(default_factory=dict)


class Operator(Protocol):
    """One subtask of an operator. One thread calls it. Stateless ones have empty snapshots."""

    def open(self, context: OperatorContext, out: Output) -> None:
        """Once, before anything else."""
        ...

    def restore(self, states: Sequence[OperatorState]) -> None:
        """After open, before the first element, if the job starts from a checkpoint. Each state comes
        from one earlier subtask, cut down to key groups of this subtask; each has its own meta."""
        ...

    def on_records(self, records: Records) -> None: ...

    def on_watermark(self, time_ms: int) -> None:
        """Event time has come to time_ms; never goes back. WATERMARK_MAX_MS at the end of the input.
        What is emitted here goes out before the watermark does."""
        ...

    def snapshot(self) -> OperatorState | None:
        """At a barrier: copy or freeze, don't write. None: no state."""
        ...

    def close(self) -> None: ...
