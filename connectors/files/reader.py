"""FileReader: reads one file after another, each exactly from its split's position."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from onceflow.connectors.files.file_constants import with_constants
from onceflow.connectors.files.file_format import BadRecord, FileDecoder, Piece
from onceflow.connectors.files.file_split import FileSplit
from onceflow.connectors.files.place import StoredFiles
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, Fetch, ReaderContext, SplitState


class FileReader:
    """A SourceReader, a ForgettingReader and a PausableReader."""

    def __init__(
        self, place: StoredFiles, decoder: FileDecoder, schema: pa.Schema, context: ReaderContext
    ) -> None:
        self._place = place
        self._decoder = decoder
        self._schema = schema
        self._with_origin = context.with_origin
        self._splits: dict[str, FileSplit] = {}
        self._unread: list[str] = []
        """Splits that are not read to their end; the first one that is not paused is being read."""
        self._paused: frozenset[str] = frozenset()
        self._reading: str | None = None
        """The split whose file is open, or was last."""
        self._pieces: Iterator[Piece] | None = None
        """What is left of the file that is being read; None: it is not open."""
        self._piece: Piece | None = None
        """The piece of which rows are left, from the split's position on."""
        self._skip = 0
        """How many records behind the place at which the file was opened were read before."""

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._splits[split.split_id] = FileSplit.from_state(split)
            self._unread.append(split.split_id)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """One piece of a file at most; there is nothing to wait for."""
        split_id = next((each for each in self._unread if each not in self._paused), None)
        if split_id is None:
            return None
        if split_id != self._reading:
            self.close()
            self._reading = split_id
        piece = self._piece or self._next_piece(self._splits[split_id])
        if piece is None:
            return self._finish(split_id)
        taken, rest = piece.cut(records_max)
        self._piece = rest if rest.records else None
        return self._fetch(split_id, taken)

    def _next_piece(self, split: FileSplit) -> Piece | None:
        """The next rows behind the split's position; None: there are none."""
        if self._pieces is None:
            split.check(self._place)
            self._skip = split.rows
            if split.is_changed:
                self._pieces = iter(())
            else:
                self._pieces = self._decoder.pieces(self._place, split.path, split.at, split.end)
        for piece in self._pieces:
            if self._skip < piece.records:
                skipped, self._skip = self._skip, 0
                return piece.cut(skipped)[1]
            self._skip -= piece.records
        return None

    def _fetch(self, split_id: str, piece: Piece) -> Fetch:
        split, count = self._splits[split_id], piece.records
        self._splits[split_id] = replace(split, at=piece.at, rows=piece.row + count, row=split.row + count)
        offset = split.row + piece.kept if self._with_origin else None
        letters = _dead_letters(split.path, piece.bad) if piece.bad else None
        batch = with_constants(piece.batch, split.constants, self._schema) if split.constants else piece.batch
        zeros = np.zeros(batch.num_rows, np.uint16)
        return Fetch(batch, zeros, (split_id,), offset, dead_letters=letters)

    def _finish(self, split_id: str) -> Fetch:
        """The file has no more rows, and is still the one that it was when it was opened."""
        self._splits[split_id].check(self._place)
        self._pieces = None
        self._unread.remove(split_id)
        offset = np.empty(0, np.int64) if self._with_origin else None
        nothing = pa.RecordBatch.from_pylist([], self._schema)
        finished = frozenset({split_id})
        return Fetch(nothing, np.empty(0, np.uint16), (split_id,), offset, finished=finished)

    def snapshot(self) -> Sequence[SplitState]:
        return [split.state() for split in self._splits.values()]

    def forget_splits(self, split_ids: Collection[str]) -> None:
        for split_id in split_ids:
            del self._splits[split_id]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader. A file that is left in the middle is opened again at its position."""
        self._paused |= frozenset(split_ids)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        """See PausableReader."""
        self._paused -= frozenset(split_ids)

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """Nobody monitors files."""

    def close(self) -> None:
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()
        self._pieces = self._piece = None


def _dead_letters(path: str, bad: Sequence[BadRecord]) -> pa.RecordBatch:
    """The topic is the file, the offset the record's byte in it."""
    letters = [
        {
            "topic": path,
            "partition": 0,
            "offset": each.place,
            "value": each.value,
            "reason": each.reason,
            "stage": "value",
        }
        for each in bad
    ]
    return pa.RecordBatch.from_pylist(letters, schema=DEAD_LETTER_SCHEMA)
