"""What travels in a channel: Records, Watermark, Idle, Barrier, EndOfInput, LoopToken.

A stream is a sequence of these elements. `Records` carries a batch of rows in columns; the other
five are control elements and travel in order with the records, which is what gives them meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Number = TypeVar("Number", bound=np.generic)
Kinds = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

WATERMARK_MIN_MS = -(1 << 63)
"""The watermark before any record: nothing is known about event time."""
WATERMARK_MAX_MS = (1 << 63) - 1
"""The end of event time: sent once after the last record of a bounded input."""


class RowKind(IntEnum):
    """What a row does to the result so far (a changelog stream, as Flink has it)."""

    INSERT = 0
    """A row that is new."""
    UPDATE_BEFORE = 1
    """What a row was before it changed: takes it back. What it is now comes behind it."""
    UPDATE_AFTER = 2
    """What a row is now."""
    DELETE = 3
    """A row that is no more; as it was."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows came from, for error messages; carried only if a user's per-record function needs it.

    `splits` are split ids (Kafka: "topic-partition"); `split` indexes them, one per row (uint16);
    `offset` is the position in that split, one per row (int64).
    """

    splits: tuple[str, ...]
    split: npt.NDArray[np.uint16]
    offset: Int64s

    def take(self, rows: Indices | Mask) -> Origin:
        """Where these rows came from, in the order in which they are given."""
        return Origin(self.splits, self.split[rows], self.offset[rows])

    def slice(self, start: int, length: int) -> Origin:
        """Where `length` rows from `start` on came from."""
        end = start + length
        return Origin(self.splits, self.split[start:end], self.offset[start:end])

    def describe(self, row: int) -> str:
        """`topic-3 at offset 17`: the record that a user has to look at."""
        return f"{self.splits[int(self.split[row])]} at offset {int(self.offset[row])}"


@dataclass(frozen=True, slots=True)
class Records:
    """A batch of rows in columns.

    `batch` holds the user's columns only (no dictionary-encoded columns). `event_time` is in ms since
    the epoch, one int64 per row, or None in a stream without event time. `key_hash` is the stable
    64-bit hash of the key, one per row, and is there downstream of a key_by only: computed once,
    kept until the stream is keyed anew. `kind` is the RowKind of each row (int8); None: all are inserts,
    which is so in most streams, and costs nothing there.
    """

    batch: pa.RecordBatch
    event_time: Int64s | None = None
    key_hash: UInt64s | None = None
    origin: Origin | None = None
    kind: Kinds | None = None

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes held, side arrays included: what the bounds of queues count."""
        extra = sum(a.nbytes for a in (self.event_time, self.key_hash, self.kind) if a is not None)
        if self.origin is not None:
            extra += self.origin.split.nbytes + self.origin.offset.nbytes
        return int(self.batch.nbytes) + extra

    def with_batch(self, batch: pa.RecordBatch) -> Records:
        """The same rows with other columns."""
        assert batch.num_rows == self.batch.num_rows, "with_batch keeps the rows"
        return replace(self, batch=batch)

    def filter(self, mask: Mask) -> Records:
        """The rows where mask is true."""
        if mask.all():
            return self
        return self._select(self.batch.filter(pa.array(mask)), mask)

    def take(self, rows: Indices) -> Records:
        """The rows at these positions, in this order; a position may come more than once."""
        return self._select(self.batch.take(pa.array(rows)), rows)

    def slice(self, start: int, length: int) -> Records:
        """A view of `length` rows from `start`, without copying."""
        end = start + length
        return Records(
            self.batch.slice(start, length),
            None if self.event_time is None else self.event_time[start:end],
            None if self.key_hash is None else self.key_hash[start:end],
            None if self.origin is None else self.origin.slice(start, length),
            None if self.kind is None else self.kind[start:end],
        )

    def _select(self, batch: pa.RecordBatch, rows: Indices | Mask) -> Records:
        return Records(
            batch,
            None if self.event_time is None else self.event_time[rows],
            None if self.key_hash is None else self.key_hash[rows],
            None if self.origin is None else self.origin.take(rows),
            None if self.kind is None else self.kind[rows],
        )


def concatenated(parts: Sequence[Records]) -> Records:
    """The rows of all these as one batch, in this order, copied. They are of one stream: of one schema, and
    all with event time, hashes and origins, or all without."""
    first = parts[0]
    if len(parts) == 1:
        return first
    batch = pa.Table.from_batches([part.batch for part in parts]).combine_chunks().to_batches()[0]
    return Records(
        batch,
        _joined([part.event_time for part in parts]),
        _joined([part.key_hash for part in parts]),
        None if first.origin is None else _origins([part.origin for part in parts]),
        None
        if all(part.kind is None for part in parts)
        else np.concatenate([_kinds(part) for part in parts]),
    )


def _joined(arrays: Sequence[npt.NDArray[Number] | None]) -> npt.NDArray[Number] | None:
    found = [array for array in arrays if array is not None]
    return np.concatenate(found) if found else None


def _origins(parts: Sequence[Origin | None]) -> Origin:
    """Each part numbers splits in its own way."""
    found = [part for part in parts if part is not None]
    splits = tuple(dict.fromkeys(split for part in found for split in part.splits))
    number = {split: n for n, split in enumerate(splits)}
    renumbered = [np.array([number[s] for s in part.splits], np.uint16)[part.split] for part in found]
    return Origin(splits, np.concatenate(renumbered), np.concatenate([part.offset for part in found]))


def _kinds(part: Records) -> Kinds:
    return np.zeros(len(part), np.int8) if part.kind is None else part.kind


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with event time <= time_ms is expected after this element (Dataflow model)."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class Idle:
    """This channel has no data for now: leave it out of the minimum until its next element."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """The line between what belongs to checkpoint n and what comes after (Chandy-Lamport; Carbone 2015).

    `is_last`: the sources send nothing after it; the job stops when the checkpoint is committed.
    """

    checkpoint_id: int
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """No more records or watermarks on this channel; barriers still come."""


@dataclass(frozen=True, slots=True)
class LoopToken:
    """It goes through the body of a loop behind the rows before it, to find out whether the loop is empty:
    see operators/iteration/head.py.

    `is_quiet`: so far nobody it met has sent a row since the token of the round before, or has one to send
    later.
    """

    loop: str
    """The uid of the loop."""
    round: int
    is_quiet: bool


Element = Records | Watermark | Idle | Barrier | EndOfInput | LoopToken
