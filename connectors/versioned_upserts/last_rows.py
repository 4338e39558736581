"""The last row of each key in a checkpoint: two rows of one key have one version, and a store that has no
transactions could mix them, or keep the earlier one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from onceflow.connectors.staged_commits.last_of_each_key import COMPACT_BYTES, LastOfEachKey, is_gone
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.connectors.versioned_upserts.backend import Piece
from onceflow.connectors.versioned_upserts.keys import key_texts

PIECE_BYTES = 4 << 20
"""How much of small batches is joined to one."""


class LastRows:
    """The rows of a checkpoint that are the last of their key, in pieces."""

    def __init__(
        self, key: Sequence[str], batches: Iterable[pa.RecordBatch], compact_bytes: int = COMPACT_BYTES
    ) -> None:
        self._key = list(key)
        self._last = LastOfEachKey(key, batches, compact_bytes)

    def pieces(self) -> Iterator[Piece]:
        """The rows, many at a time: a slow stream comes in batches of a few, and a request for each of these
        would take longer than the stream."""
        for batch in _joined(self._last.batches):
            keys = [text for text in key_texts(batch, self._key) if text is not None]
            yield Piece(keys, is_gone(batch), _columns(batch))

    def without_key(self) -> Iterator[Piece]:
        """Each row with a null in its key; its text is its number among these rows."""
        number = 0
        for batch in self._last.nulls:
            for row in range(len(batch)):
                one = batch.slice(row, 1)
                yield Piece([f"null ({number})"], is_gone(one), _columns(one))
                number += 1


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in as few batches as PIECE_BYTES allows."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= PIECE_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)


def _columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name != KIND])
