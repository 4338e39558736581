"""Upserts and deletes by key: how a writer stages them, and what a checkpoint's changes come to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.staged_commits.staged_kinds import KIND, kinds_beside, with_kind
from onceflow.connectors.staged_rows import StagedRowsWriter, row_files
from onceflow.connectors.tables.columns import FittedColumns
from onceflow.runtime.contracts import Committable, PreCommit, PromisedFiles, SinkContext
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Records, RowKind


class ChangesWriter:
    """The SinkWriter of a table whose rows have keys. Changes wait in the checkpoint folder; the driver's
    committer merges them into the table in one commit."""

    def __init__(
        self,
        context: SinkContext,
        columns: FittedColumns,
        key: Sequence[str],
        check: Callable[[pa.RecordBatch], None] = lambda rows: None,
    ) -> None:
        """`check` raises Fatal for rows that the table format can't store."""
        self._where = f"sink {context.uid!r}"
        self._columns = columns
        self._key = key
        self._check = check
        self._schema = with_kind(columns.schema)
        self._rows = StagedRowsWriter(replace(context, schema=self._schema))

    def recover(self, committables: Sequence[Committable]) -> None:
        assert not committables, "the committer has committed them before a slot was started"

    def write(self, records: Records) -> None:
        if not len(records):
            return
        batch = self._columns.fit(records.batch, self._where)
        for name in self._key:
            if batch.column(name).null_count:
                raise Fatal(
                    f"{self._where}: key column {name!r} is null in a row, and null is not a key: "
                    "filter such rows, or give it a value"
                )
        self._check(batch)
        self._rows.write(Records(kinds_beside(self._schema, Records(batch, kind=records.kind))))

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        return self._rows.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        """The committer has merged them."""
        self._rows.forget(checkpoint_id)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What the changes of a checkpoint come to: each key at most once."""

    rows: pa.Table
    """What is there afterwards, for the keys that were written."""
    deleted: pa.Table
    """The key columns of what is gone."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.deleted)


def read_changes(
    committables: Iterable[Committable], files: PromisedFiles, key: Sequence[str], order_by: str | None
) -> Changes | None:
    """The changes that these name; None: there are none. Which row of a key counts, see last_changes, where
    those of a committable come before those of the next. Raises CorruptCheckpointError, OSError."""
    batches = [batch for each in committables for file in row_files(each) for batch in file.batches(files)]
    if not batches:
        return None
    # A restored checkpoint may have been written before a column was added.
    return last_changes(pa.concat_tables(map(pa.table, batches), promote_options="default"), key, order_by)


def last_changes(table: pa.Table, key: Sequence[str], order_by: str | None = None) -> Changes:
    """The last change of each key. What a row was before an update is a delete of it, until the row behind
    it says what it is now: so an update that moves a row to another key takes the old one away. With
    `order_by` it is the one with the highest value there, of equal ones the last; null is below all."""
    names = [f"key {n}" for n in range(len(key))]
    orders = [] if order_by is None else [order_by]
    ordering = ["order"] if orders else []
    keys = pl.from_arrow(pa.table([table.column(name) for name in (*key, *orders)], [*names, *ordering]))
    assert isinstance(keys, pl.DataFrame)
    keys = keys.with_row_index("row")
    if ordering:
        keys = keys.sort(ordering, nulls_last=False, maintain_order=True)
    last = keys.unique(names, keep="last").get_column("row").sort()
    table = table.take(last.to_arrow())
    kinds = table.column(KIND)
    is_gone = pc.is_in(kinds, pa.array([RowKind.UPDATE_BEFORE, RowKind.DELETE], pa.int8()))
    return Changes(
        table.filter(pc.invert(is_gone)).drop_columns([KIND]), table.filter(is_gone).select(list(key))
    )
