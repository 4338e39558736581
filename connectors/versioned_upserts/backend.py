"""Backend: what a store has to do for the sinks that upsert into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa


class TooLargeError(Exception):
    """The store takes no request of this size. A smaller one may pass."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of different keys that are written in one call. `keys`: each row's key as text. `is_gone`: the row
    is to be deleted, and only its key columns count."""

    keys: Sequence[str]
    is_gone: npt.NDArray[np.bool_]
    rows: pa.RecordBatch

    def __len__(self) -> int:
        return len(self.keys)

    def slice(self, first: int, count: int) -> Piece:
        end = first + count
        return Piece(self.keys[first:end], self.is_gone[first:end], self.rows.slice(first, count))

    def take(self, numbers: Sequence[int]) -> Piece:
        """These rows of it."""
        rows = self.rows.take(pa.array(numbers, pa.int64()))
        return Piece([self.keys[n] for n in numbers], self.is_gone[list(numbers)], rows)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the rows of a piece, by their places in it. All others are done: written, or there
    already in this version or a newer one."""

    busy: Sequence[int] = ()
    """The store had no room for these now."""
    bad: Mapping[int, str] = field(default_factory=dict)
    """The store refuses these whenever they are tried, for these reasons."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that the store refuses, as JSON text. `name` is the same whenever it is refused in the same
    checkpoint, and no other row's."""

    name: str
    key: str
    reason: str
    row: str


@dataclass(frozen=True, slots=True)
class Note:
    """A small text that the store keeps for us under a name. `state`: what `put_note` compares it by, for a
    store that numbers its changes."""

    name: str
    text: str
    state: str = ""


class Backend(Protocol):
    """A store, for one owner in one attempt of the job. All of its calls but `write` come from one thread at
    a time, `write` from as many as `calls_max` says.

    Calls raise Retryable where nothing was done, Indeterminate where nobody knows, and Fatal where it will
    fail whenever it is tried: no right, no such place. All of them may be repeated.
    """

    calls_max: int
    """How many `write` may be under way at once."""
    rows_max: int
    bytes_max: int
    """How large a piece may be."""
    generation_first: int
    """The lowest generation at this place. Higher than 1 where rows of others may lie that have versions."""

    def open(self) -> None:
        """Connect anew, and see that the rows fit the place, which is made if the user says so."""
        ...

    def read_note(self, name: str) -> Note | None:
        """The latest note of that name: every `put_note` that has returned before is seen."""
        ...

    def put_note(self, name: str, text: str, over: Note | None) -> Note | None:
        """Write it if what is there is still `over` (None: nothing), and give it as it is then. None if it is
        not, and nothing was done. In one step: of two at once, one is first and the other is refused."""
        ...

    def write(self, piece: Piece, version: int, under: Sequence[Note]) -> Answer:
        """Put and delete these rows, each unless a newer version of it is there. A repetition that comes late
        changes nothing. A store that can compare all notes of `under` with what is noted now, in the same
        step, does, and raises Retryable if it is not that any more: then nothing of an overtaken writer
        lands."""
        ...

    def set_aside(self, bad: Sequence[BadRow]) -> None:
        """Put rows that were refused where the user said. A repetition changes nothing."""
        ...

    def close(self) -> None:
        """Let go of everything; may be called twice."""
        ...
