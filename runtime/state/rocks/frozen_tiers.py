"""FrozenTiers: the rows of a table at a barrier, those in memory first and then those in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from onceflow.runtime.errors import Retryable
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.rocks.away import Away
from onceflow.runtime.state.rocks.row_codec import RowCodec
from onceflow.runtime.state.rocks.row_ids import Identities, are_among, identities_of, in_order

_READ_ROWS = 1 << 13


class FrozenTiers:
    """FrozenRows, of which no piece may begin before the last one: what RocksDB has is read once, in its
    order."""

    def __init__(
        self,
        hot: FrozenRows,
        away: Away,
        twice: Identities,
        codec: RowCodec,
        max_parallelism: int,
        start_column: str | None,
    ) -> None:
        """`away`: the rows in RocksDB, but for those that are `twice`: in memory, too, where they may have
        changed."""
        self._hot: FrozenRows | None = hot
        """None: they are written. Rows that go meanwhile are not kept in memory until all others are, too."""
        self._in_memory = len(hot)
        self._away = away
        self._twice = twice
        self._codec = codec
        self._max_parallelism = max_parallelism
        self._start_column = start_column
        self._count = 0
        self._stored: Iterator[tuple[bytes, bytes]] | None = None
        """None: nothing is prepared."""
        self._first = 0
        self._rows: list[tuple[bytes, bytes]] = []
        """The rows from this one on that were read: those of the last piece, and some more."""

    def __len__(self) -> int:
        self._prepare()
        return self._in_memory + self._count

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        self._prepare()
        in_memory = self._in_memory
        pieces = []
        if first < in_memory or first == end:
            assert self._hot is not None, f"pieces are read in their order: {first}, behind {in_memory}"
            pieces.append(self._codec.completed(self._hot.piece(first, min(end, in_memory))))
        if end > in_memory:
            pieces.append(self._from_rocks(max(first, in_memory) - in_memory, end - in_memory))
        if in_memory <= first < end:
            self._hot = None
        return pieces[0] if len(pieces) == 1 else pa.concat_batches(pieces)

    def _prepare(self) -> None:
        """Called by the thread that reads, and not by the slot's."""
        if self._stored is None:
            assert self._hot is not None, "nothing was read"
            self._twice = in_order(self._twice)
            self._codec.learn(self._hot.piece(0, 0).schema)
            self._count = self._away.count(self._twice)
            self._stored = self._away.rows()

    def _from_rocks(self, first: int, end: int) -> pa.RecordBatch:
        assert first >= self._first, f"pieces are read in their order: {first}, after {self._first}"
        while (missing := end - self._first - len(self._rows)) > 0 and self._read(min(missing, _READ_ROWS)):
            pass
        del self._rows[: first - self._first]
        self._first = first
        rows = self._rows[: end - first]
        if len(rows) < end - first:
            raise Retryable(f"RocksDB gave {first + len(rows)} rows of {self._count}: its files are gone")
        hashes = identities_of([row_id for row_id, _ in rows])[:, 0]
        contents = [content for _, content in rows]
        return self._codec.rows(contents, hashes, self._start_column, self._max_parallelism)

    def _read(self, rows: int) -> bool:
        """Read so many more, of which some may be twice; False: there are no more."""
        assert self._stored is not None, "prepared"
        read = list(islice(self._stored, rows))
        if read:
            twice = are_among(identities_of([row_id for row_id, _ in read]), self._twice).tolist()
            self._rows += [row for row, is_twice in zip(read, twice, strict=True) if not is_twice]
        return bool(read)
