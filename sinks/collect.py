"""CollectSink: rows into the driver's memory, for the program that has run the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from onceflow.connectors.hand_over import HandOver, Ledger
from onceflow.connectors.staged_rows import CommittedElsewhere
from onceflow.runtime.contracts import CommitterContext, SinkContext
from onceflow.runtime.errors import Fatal, UsageError


class Basket(Protocol):
    """What rows are collected into, in the driver."""

    def begin(self, lineage: str) -> None:
        """A run of a job has its first attempt: empty it, unless rows of this lineage are in it."""
        ...

    def has_begun(self, lineage: str) -> bool:
        """Whether the rows in it are of this lineage, from its beginning."""
        ...

    @property
    def bytes(self) -> int:
        """The size of the rows in it."""
        ...

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """The rows of one more checkpoint."""
        ...


@dataclass(frozen=True)
class CollectSink:
    """A CommittingSink. Each row is in the basket once, however often attempts are restarted.

    Raises Fatal, which ends the job, for more than `bytes_max` bytes. A job that goes on from a checkpoint
    of an earlier process is refused: the rows before it went with that.
    """

    into: Basket
    bytes_max: int
    _ledger: Ledger = field(default_factory=dict, init=False, repr=False, compare=False)

    def check(self, schema: pa.Schema, uid: str) -> None:
        """Rows of any schema can be collected."""

    def open_writer(self, context: SinkContext) -> CommittedElsewhere:
        return CommittedElsewhere(context)

    def open_committer(self, context: CommitterContext) -> HandOver:
        is_restored = context.restored_checkpoint_id > 0
        if is_restored and not self.into.has_begun(context.lineage):
            raise UsageError(
                f"sink {context.uid!r}: collect() gives the rows of a whole run, and this job goes on from "
                f"checkpoint {context.restored_checkpoint_id}, the rows before which went to a process that "
                "is gone: run it with another checkpoint_dir, or without, or write to files with "
                "to_files(...)"
            )
        if not is_restored:
            self.into.begin(context.lineage)
        return HandOver(context, self._ledger, lambda batches: self._take(batches, context.uid))

    def _take(self, batches: Iterator[pa.RecordBatch], uid: str) -> None:
        taken, total = [], self.into.bytes
        for batch in batches:
            taken.append(batch)
            total += batch.nbytes
            if total > self.bytes_max:
                raise Fatal(
                    f"sink {uid!r}: collect() holds all rows in memory, and there are more than "
                    f"{self.bytes_max >> 20} MiB of them: write them to files with to_files(...), or say "
                    "collect(bytes_max=...)"
                )
        self.into.add(taken)
