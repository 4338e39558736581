"""Delivery: which rows of a checkpoint are written, which are tried again and how many at once. Pure.

Rows go out in pieces. What the store has no room for, and what has no answer, comes into the next round, in
smaller pieces and one at a time; pieces and calls grow again while all goes well. A round in which nothing is
done ends in Retryable: whoever writes waits then, longer and longer, and goes on with what is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from onceflow.connectors.versioned_upserts.backend import Answer, Piece
from onceflow.runtime.errors import OnceflowError, Retryable


@dataclass(frozen=True, slots=True)
class Limits:
    """How much goes out at once, at most."""

    rows_max: int
    bytes_max: int
    calls_max: int


class Delivery:
    """See the module. `next_piece` until it gives None, one of the answers for each of them, and again; when
    there is nothing more and all are answered, `end_round`, which says whether all is done."""

    def __init__(self, pieces: Iterable[Piece], limits: Limits) -> None:
        self._waiting = deque(piece for piece in pieces if len(piece))
        self._again: list[Piece] = []
        self._limits = limits
        self._rows = limits.rows_max
        self._calls = limits.calls_max
        self._under_way = 0
        self._has_progress = False
        self._error: OnceflowError | None = None
        self.bad: list[tuple[Piece, str]] = []
        """Rows that the store refuses, each with its reason."""

    def next_piece(self) -> Piece | None:
        """What to write next; None: answers have to come first, or the round is over. After a call that
        failed nothing more goes out in this round: the store is away."""
        if self._under_way >= self._calls or self._error is not None or not self._waiting:
            return None
        piece = self._waiting.popleft()
        count = self._count(piece)
        if count < len(piece):
            self._waiting.appendleft(piece.slice(count, len(piece) - count))
            piece = piece.slice(0, count)
        self._under_way += 1
        return piece

    def answered(self, piece: Piece, answer: Answer) -> None:
        """The store has said what became of a piece."""
        self._under_way -= 1
        for n, reason in answer.bad.items():
            self.bad.append((piece.slice(n, 1), reason))
        if answer.busy:
            self._again.append(piece.take(sorted(answer.busy)))
            self._shrink(len(piece))
        else:
            self._rows = min(self._rows * 2, self._limits.rows_max)
            self._calls = min(self._calls + 1, self._limits.calls_max)
        self._has_progress |= len(answer.busy) < len(piece)

    def failed(self, piece: Piece, error: OnceflowError) -> None:
        """Nobody knows what became of a piece, or nothing did."""
        self._under_way -= 1
        self._again.append(piece)
        self._error = error
        self._shrink(len(piece))

    def too_large(self, piece: Piece, reason: str) -> None:
        """The store takes no request of this size: half of it, and of one row never."""
        self._under_way -= 1
        if len(piece) == 1:
            self.bad.append((piece, reason))
        else:
            half = len(piece) // 2
            self._waiting.extendleft((piece.slice(half, len(piece) - half), piece.slice(0, half)))
        self._has_progress = True

    def end_round(self) -> bool:
        """Whether all is done. Raises Retryable if nothing was in this round: it may go on later."""
        assert not self._under_way, "all answers have come"
        if not self._again and not self._waiting:
            return True
        error, has_progress = self._error, self._has_progress
        self._waiting.extendleft(reversed(self._again))
        self._again, self._error, self._has_progress = [], None, False
        if not has_progress:
            rows = sum(map(len, self._waiting))
            raise Retryable(str(error) if error else f"the store is too busy for {rows} rows")
        return False

    def _count(self, piece: Piece) -> int:
        """How many rows of it go out."""
        bytes_each = max(1, piece.rows.nbytes // len(piece))
        return int(max(1, min(self._rows, self._limits.bytes_max // bytes_each, len(piece))))

    def _shrink(self, rows: int) -> None:
        self._rows, self._calls = max(1, min(self._rows, rows // 2)), 1
