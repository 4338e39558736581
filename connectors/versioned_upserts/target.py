"""VersionedTarget: an owner's rows in a store without transactions, with a ledger beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.rows_as_text import json_lines
from onceflow.connectors.versioned_upserts.backend import Answer, Backend, BadRow, Piece, TooLargeError
from onceflow.connectors.versioned_upserts.delivery import Delivery, Limits
from onceflow.connectors.versioned_upserts.last_rows import LastRows
from onceflow.connectors.versioned_upserts.ledger import Ledger, Writer
from onceflow.connectors.versioned_upserts.row_version import version_of
from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable


@dataclass(frozen=True, slots=True)
class Upserts:
    """What a sink says of its rows. `place`: where they go, for messages, as in "index orders"."""

    key: Sequence[str]
    place: str
    sets_aside: bool
    """Rows that the store refuses are set aside; otherwise the first of them ends the job."""


class VersionedTarget:
    """A Target, whose commit is no single step: the rows of a durable checkpoint become visible one after
    another, and then the ledger says that they are all there.

    | crash, or a lost answer             | what is seen          | what comes next                       |
    | ----------------------------------- | --------------------- | ------------------------------------- |
    | before the first row                | the checkpoint before | all rows are written                  |
    | between two rows                    | some of its rows      | all again, in a higher version        |
    | all written, the ledger not changed | the checkpoint        | the same                              |
    | the ledger changed, no answer       | the checkpoint        | the ledger is read, nothing is written |
    | an older attempt's write comes late | what is newer stays   | its calls to the ledger are refused   |

    A commit that had to wait goes on with the rows that are left, in the same attempt.
    """

    def __init__(self, backend: Backend, writer: Writer, upserts: Upserts, calls: futures.Executor) -> None:
        self._backend = backend
        self._writer = writer
        self._upserts = upserts
        self._calls = calls
        self._ledger = Ledger(backend, writer)
        self._begun: tuple[int, Delivery] | None = None
        """A checkpoint that is being written, and what of it is left, while nothing is under way."""

    def claim(self) -> int:
        self._backend.open()
        return self._ledger.claim()

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        self._ledger.check()
        delivery = self._delivery(checkpoint_id, rows)
        version = version_of(self._ledger.generation, checkpoint_id)
        is_done = False
        while not is_done:
            self._begun = None
            self._round(delivery, version)
            self._begun = (checkpoint_id, delivery)
            is_done = delivery.end_round()
        self._deal_with(delivery.bad, checkpoint_id)
        self._ledger.advance(checkpoint_id)
        self._begun = None

    def close(self) -> None:
        self._calls.shutdown()
        self._backend.close()

    def _delivery(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> Delivery:
        if self._begun is not None and self._begun[0] == checkpoint_id:
            return self._begun[1]
        backend = self._backend
        last = LastRows(self._upserts.key, rows)
        delivery = Delivery(last.pieces(), Limits(backend.rows_max, backend.bytes_max, backend.calls_max))
        delivery.bad.extend((row, "its key is null") for row in last.without_key())
        return delivery

    def _round(self, delivery: Delivery, version: int) -> None:
        """One round of a delivery. All calls have come back when it ends, and then the first error that is
        hopeless is raised."""
        under_way: dict[futures.Future[Answer], Piece] = {}
        hopeless: OnceflowError | None = None
        while True:
            while hopeless is None and (piece := delivery.next_piece()) is not None:
                call = self._calls.submit(self._backend.write, piece, version, self._ledger.under)
                under_way[call] = piece
            if not under_way:
                break
            done, _ = futures.wait(under_way, return_when=futures.FIRST_COMPLETED)
            for call in done:
                hopeless = _hear(delivery, under_way.pop(call), call) or hopeless
        if hopeless is not None:
            raise hopeless

    def _deal_with(self, bad: Sequence[tuple[Piece, str]], checkpoint_id: int) -> None:
        """Set rows aside that the store refuses, or raise Fatal for the first of them."""
        if not bad:
            return
        rows = [self._bad_row(row, reason, checkpoint_id) for row, reason in bad]
        if not self._upserts.sets_aside:
            first = rows[0]
            raise Fatal(
                f"sink {self._writer.uid!r}: {self._upserts.place} refuses the row with key {first.key}: "
                f"{first.reason}. The row: {first.row}. Mend the job or what it is written into, or name a "
                "place for such rows with bad_rows_to="
            )
        self._backend.set_aside(rows)

    def _bad_row(self, row: Piece, reason: str, checkpoint_id: int) -> BadRow:
        writer, key = self._writer, row.keys[0]
        name = f"{writer.lineage} {writer.uid} {writer.owner} {checkpoint_id} {key}"
        return BadRow(name, key, reason, next(json_lines(row.rows)))


def _hear(delivery: Delivery, piece: Piece, call: futures.Future[Answer]) -> OnceflowError | None:
    """Tell the delivery what became of a piece; gives an error that no later try will mend."""
    try:
        delivery.answered(piece, call.result())
    except TooLargeError as error:
        delivery.too_large(piece, str(error))
    except (Retryable, Indeterminate) as error:
        delivery.failed(piece, error)
    except OnceflowError as error:
        delivery.failed(piece, error)
        return error
    return None
