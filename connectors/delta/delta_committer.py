"""DeltaCommitter: one commit of the table for each checkpoint, with the ledger in it.

The ledger is Delta's own: a `txn` action, which says the latest checkpoint of a sink, in the same entry of
the log as the files. The order of a commit, and what a crash leaves in each gap:

1. `last_committed` reads the table anew. All that follows is done on top of what it saw.
2. All data files are found. One that is not was lost: the job ends with a sentence, and nothing happened.
   By key: the changes are read, and the files that have their keys are written anew, beside the old ones.
   Crash: files that nobody names.
3. The next entry of the log is created; it names the files and the checkpoint. Of two that want it one wins.
   The other one reads what has won: files of others are let in, as long as nothing was read that they change;
   another entry of this ledger never is. Crash, or no answer: the ledger says whether it is there.
4. Every so often a thread of its own makes few large files of many small ones, and deletes what is removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from onceflow.connectors.delta.earlier_version import version_at
from onceflow.connectors.delta.library_errors import asking, committing
from onceflow.connectors.delta.maintenance import Maintenance
from onceflow.connectors.delta.opened_table import add_columns, fresh, open_table, schema_of
from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.connectors.tables.append_writer import written_files
from onceflow.connectors.tables.changes import Changes, read_changes
from onceflow.connectors.tables.data_file import WrittenFile
from onceflow.connectors.tables.file_names import ledger_name
from onceflow.connectors.tables.file_store import FileStore
from onceflow.runtime.contracts import Committable, CommitterContext
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import DataLossError, Fenced

_GONE = "onceflow.is_gone"


class DeltaCommitter:
    """A TakingBackCommitter."""

    def __init__(self, settings: DeltaSettings, context: CommitterContext) -> None:
        """Opens the table. Raises Fatal, Unavailable, Indeterminate."""
        self._settings = settings
        self._context = context
        self._where = f"sink {context.uid!r}, Delta table {settings.url}"
        self._ledger = ledger_name(context.lineage, context.uid)
        self._maintenance = Maintenance(settings, self._where)
        self._table: DeltaTable | None = None
        """The table as it was when the ledger was asked; None: it has to be asked first."""
        add_columns(open_table(settings, context.schema, context.uid), settings, context.uid)

    def last_committed(self) -> int | None:
        with asking(self._where):
            self._table = fresh(self._settings)
            return self._table.transaction_version(self._ledger)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        if self._table is None:
            raise Fenced(f"{self._where}: nobody has asked what is committed")
        table, self._table = self._table, None
        if self._settings.key:
            settings, staged = self._settings, self._context.files
            changes = read_changes(committables, staged, settings.key, settings.order_by)
            if changes is None:
                return  # nothing to show: the ledger need not know of it
            self._merge(table, checkpoint_id, changes)
        else:
            files = written_files(committables)
            if not files:
                return
            self._check_files(files, checkpoint_id)
            self._append(table, checkpoint_id, files)
        self._maintenance.on_commit()

    def take_back(self, checkpoint_id: int, went_back: WentBack, committables: Sequence[Committable]) -> None:
        """See TakingBackCommitter: an older version is restored, in one commit with the ledger. Versions of
        others in between are refused."""
        table, self._table = self._table, None
        assert table is not None, "it was asked"
        settings = self._settings
        with asking(self._where):
            version = version_at(settings, table, self._ledger, went_back.to, went_back.past, self._where)
        if version == table.version():
            self._write(table, checkpoint_id, [])
            return
        with committing(self._where):
            table.restore(version, commit_properties=self._properties(checkpoint_id))
        # With the rows the columns have become what they were.
        context = self._context
        add_columns(open_table(settings, context.schema, context.uid), settings, context.uid)

    def close(self) -> None:
        self._maintenance.close()

    # --- Without a key ---

    def _append(self, table: DeltaTable, checkpoint_id: int, files: Sequence[WrittenFile]) -> None:
        now_ms = self._context.clock.now_ms()
        adds = [
            AddAction(
                file.path, file.bytes, _texts(file.partition), now_ms, True, str(file.described["stats"])
            )
            for file in files
        ]
        self._write(table, checkpoint_id, adds)

    def _write(self, table: DeltaTable, checkpoint_id: int, adds: Sequence[AddAction]) -> None:
        with committing(self._where):
            table.create_write_transaction(
                [*adds],
                mode="append",
                schema=table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=self._properties(checkpoint_id),
            )

    def _check_files(self, files: Sequence[WrittenFile], checkpoint_id: int) -> None:
        store: FileStore = self._settings.file_store()
        for file in files:
            if store.size(file.path) != file.bytes:
                raise DataLossError(
                    f"{self._where}: {file.path} is not there as a slot wrote it for checkpoint "
                    f"{checkpoint_id}: slots on other machines have to see the same storage as the driver, "
                    "and a VACUUM must keep files for longer than the job is down"
                )

    # --- By key ---

    def _merge(self, table: DeltaTable, checkpoint_id: int, changes: Changes) -> None:
        schema = schema_of(table)
        names = changes.rows.schema.names
        source = pa.concat_tables(
            [
                changes.rows.append_column(_GONE, pa.repeat(False, len(changes.rows))),
                changes.deleted.append_column(_GONE, pa.repeat(True, len(changes.deleted))),
            ],
            promote_options="default",
        ).cast(pa.schema([*(schema.field(name).with_nullable(True) for name in names), (_GONE, pa.bool_())]))
        same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in self._settings.key)
        values = {_quoted(name): f"new.{_quoted(name)}" for name in names}
        gone = f"new.{_quoted(_GONE)}"
        before = table.version()
        with committing(self._where):
            merger = table.merge(
                source, same, "new", "old", commit_properties=self._properties(checkpoint_id)
            )
            merger = merger.when_matched_delete(gone).when_matched_update(values, f"NOT {gone}")
            merger.when_not_matched_insert(values, f"NOT {gone}").execute()
        if table.version() == before:  # it deleted only what was not there
            self._write(table, checkpoint_id, [])

    def _properties(self, checkpoint_id: int) -> CommitProperties:
        """The ledger. The time is left out: an entry with one may be forgotten after a while."""
        return CommitProperties(app_transactions=[Transaction(self._ledger, checkpoint_id, None)])


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _texts(partition: Mapping[str, Any]) -> Mapping[str, str | None]:
    return dict(partition)
