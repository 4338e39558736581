"""HandOver: a committer that hands a checkpoint's rows on, in the driver's process, once in the life of
that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence

import pyarrow as pa

from onceflow.connectors.staged_rows import row_files
from onceflow.runtime.contracts import Committable, CommitterContext
from onceflow.runtime.errors import Fenced

Ledger = MutableMapping[str, int]
"""The latest checkpoint that was handed on, by lineage and uid. It lives as long as the driver's process."""


class HandOver:
    """A SinkCommitter. What it does is seen by this process alone, so the ledger need not outlive it: a new
    driver hands on again what the restored checkpoint promised."""

    def __init__(
        self,
        context: CommitterContext,
        ledger: Ledger,
        take: Callable[[Iterator[pa.RecordBatch]], None],
    ) -> None:
        """`take` gets the rows of a checkpoint, writer by writer, each writer's in their order."""
        self._context = context
        self._key = f"{context.lineage}.{context.uid}"
        self._ledger = ledger
        self._take = take
        self._seen: int | None = None

    def last_committed(self) -> int | None:
        self._seen = self._ledger.get(self._key)
        return self._seen

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        if self._ledger.get(self._key) != self._seen:
            raise Fenced(f"a newer attempt has committed a checkpoint of sink {self._context.uid!r}")
        in_order = sorted(committables, key=lambda each: int(each.owner))
        self._take(
            batch
            for committable in in_order
            for file in row_files(committable)
            for batch in file.batches(self._context.files)
        )
        self._seen = self._ledger[self._key] = checkpoint_id

    def close(self) -> None:
        """Nothing is open."""
