"""LazyTables: the table of a snapshot, made from frozen columns when it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from onceflow.runtime.state.frozen_rows import FrozenRows


class LazyTables(Mapping[str, pa.Table]):
    """One table by its name. Frozen at the barrier by the task's thread; the thread that writes the snapshot
    reads its `rows`, so that the table is never there as a whole."""

    def __init__(self, name: str, rows: FrozenRows) -> None:
        self._rows = {name: rows}

    def rows(self, name: str) -> FrozenRows:
        return self._rows[name]

    def __getitem__(self, name: str) -> pa.Table:
        rows = self._rows[name]
        return pa.Table.from_batches([rows.piece(0, len(rows))])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
