"""A store in memory without transactions, on which anything may go wrong: the sinks that upsert are proven on
it.

Each row is written for itself. A call may be refused, get lost, be done without an answer, land twice or when
its caller has long given up, be done for some of its rows only, or be the last that its caller makes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from onceflow.connectors.versioned_upserts.backend import Answer, BadRow, Note, Piece, TooLargeError
from onceflow.runtime.errors import Indeterminate, Retryable

T = TypeVar("T")
Row = dict[str, Any]
Choose = Callable[[int], int]
"""A number below the given one: what happens next."""


class CrashError(Exception):
    """The process of the writer is killed."""


class Fate(Enum):
    """What becomes of a call."""

    REFUSED = "refused"
    LOST = "not done, and nobody says so"
    DONE_UNSAID = "done, and the answer is lost"
    LATE = "done when the caller has given up"
    TWICE = "done, and once more later"
    PARTLY = "done for some rows, and no answer"
    CRASH_BEFORE = "the caller is killed before"
    CRASH_PARTLY = "the caller is killed when some rows are done"
    CRASH_AFTER = "the caller is killed after"


class Inline(futures.Executor):
    """Makes each call at once."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> futures.Future[T]:
        future: futures.Future[T] = futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass
class SimulatedStore:
    """`rows`: by key, a row and its version; None for one that was deleted. `compares`: "versions", or
    "notes": a write lands under the note only that it was made under, and versions don't count, as in Redis;
    or "nothing"."""

    choose: Choose
    compares: str = "versions"
    rows: dict[str, tuple[Row | None, int]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    aside: dict[str, BadRow] = field(default_factory=dict)
    late: list[Callable[[], Any]] = field(default_factory=list)
    goes_wrong: bool = True
    """False: from now on all goes well."""

    def visible(self) -> dict[str, Row]:
        return {key: row for key, (row, _) in self.rows.items() if row is not None}

    def settle(self) -> None:
        """Some of what is late lands, or never will."""
        for call in list(self.late):
            if self.choose(4) == 0:
                self.late.remove(call)
                call()

    def fate(self) -> Fate | None:
        """None: all goes well."""
        if not self.goes_wrong or self.choose(6):
            return None
        return list(Fate)[self.choose(len(Fate))]

    def put(self, key: str, row: Row | None, version: int) -> None:
        """One row, if nothing newer is there."""
        _, there = self.rows.get(key, (None, 0))
        if self.compares != "versions" or version > there:
            self.rows[key] = (row, version)


class SimulatedBackend:
    """A Backend."""

    calls_max, rows_max, bytes_max, generation_first = 2, 3, 1 << 20, 1

    def __init__(self, store: SimulatedStore) -> None:
        self._store = store

    def open(self) -> None:
        self._meet_fate(lambda: None)

    def read_note(self, name: str) -> Note | None:
        def read() -> Note | None:
            text = self._store.notes.get(name)
            return None if text is None else Note(name, text)

        return self._meet_fate(read)

    def put_note(self, name: str, text: str, over: Note | None) -> Note | None:
        def put() -> Note | None:
            if self._store.notes.get(name) != (None if over is None else over.text):
                return None
            self._store.notes[name] = text
            return Note(name, text)

        return self._meet_fate(put)

    def write(self, piece: Piece, version: int, under: Sequence[Note]) -> Answer:
        rows = piece.rows.to_pylist()
        busy = [n for n in range(len(piece)) if self._store.goes_wrong and self._store.choose(12) == 0]
        if self._store.goes_wrong and len(piece) > 1 and self._store.choose(20) == 0:
            raise TooLargeError("too large")

        def write(count: int = len(piece)) -> Answer:
            is_same = all(self._store.notes.get(note.name) == note.text for note in under)
            if self._store.compares == "notes" and not is_same:
                raise Retryable("another note")
            for n in range(count):
                if n not in busy:
                    row = None if piece.is_gone[n] else rows[n]
                    self._store.put(piece.keys[n], row, version)
            return Answer(busy=busy)

        # A store that compares notes writes a piece as a whole.
        part = (
            (lambda: None)
            if self._store.compares == "notes"
            else lambda: write(self._store.choose(len(piece)))
        )
        return self._meet_fate(write, part)

    def set_aside(self, bad: Sequence[BadRow]) -> None:
        self._meet_fate(lambda: self._store.aside.update({row.name: row for row in bad}))

    def close(self) -> None:
        """Nothing is open."""

    def _meet_fate(self, call: Callable[[], T], part: Callable[[], object] = lambda: None) -> T:
        store = self._store
        store.settle()
        match store.fate():
            case None:
                return call()
            case Fate.TWICE:
                store.late.append(lambda: _tried(call))
                return call()
            case Fate.REFUSED:
                raise Retryable("refused")
            case Fate.DONE_UNSAID:
                call()
            case Fate.LATE:
                store.late.append(lambda: _tried(call))
            case Fate.PARTLY:
                _tried(part)
            case Fate.CRASH_BEFORE:
                raise CrashError
            case Fate.CRASH_PARTLY:
                _tried(part)
                raise CrashError
            case Fate.CRASH_AFTER:
                call()
                raise CrashError
            case Fate.LOST:
                pass
        raise Indeterminate("no answer")


def _tried(call: Callable[[], object]) -> None:
    """A call that nobody waits for."""
    try:
        call()
    except Retryable:
        return
