"""PrintSink: rows on the standard output of the driver, once their checkpoint is durable."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.connectors.hand_over import HandOver, Ledger
from onceflow.connectors.rows_as_text import json_lines, table_lines
from onceflow.connectors.staged_rows import CommittedElsewhere
from onceflow.runtime.contracts import CommitterContext, SinkContext

TABLE_ROWS_MAX = 1_000
"""The most rows of one table: the columns of the next one may be narrower."""

LINES_AT_ONCE = 1_000
"""How many lines are written at once: each write draws the live line anew."""


@dataclass(frozen=True)
class PrintSink:
    """A CommittingSink. On a terminal a table for each checkpoint with rows, else a JSON object a line.

    `label` stands before each line, or above each table, as in `totals> {"user":"ann"}`. A row is shown
    once; after the driver itself was ended, those of its last checkpoint may be shown again.
    """

    label: str | None = None
    _ledger: Ledger = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def plan_note(self) -> str:
        return (
            "shown once its checkpoint is durable; when the job is started again, rows of the last "
            "checkpoint may be shown again"
        )

    def check(self, schema: pa.Schema, uid: str) -> None:
        """Rows of any schema can be shown."""

    def open_writer(self, context: SinkContext) -> CommittedElsewhere:
        return CommittedElsewhere(context)

    def open_committer(self, context: CommitterContext) -> HandOver:
        return HandOver(context, self._ledger, self._show)

    def _show(self, batches: Iterator[pa.RecordBatch]) -> None:
        # Looked up each time: the live line, a test or a notebook may have put another in its place.
        stream = sys.stdout
        try:
            if stream.isatty():
                lines = self._tables(batches)
            else:
                prefix = f"{self.label}> " if self.label else ""
                lines = (f"{prefix}{line}" for batch in batches for line in json_lines(batch))
            while piece := list(itertools.islice(lines, LINES_AT_ONCE)):
                stream.write("\n".join(piece) + "\n")
            stream.flush()
        except BrokenPipeError:
            # `| head` has seen enough. What is still in the stream's buffer must find a file at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    def _tables(self, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
        found = list(batches)
        table = pa.Table.from_batches(found) if found else pa.table({})
        for first in range(0, len(table), TABLE_ROWS_MAX):
            (batch,) = table.slice(first, TABLE_ROWS_MAX).combine_chunks().to_batches()
            yield from [self.label] if self.label else []
            yield from table_lines(batch)
            yield ""
