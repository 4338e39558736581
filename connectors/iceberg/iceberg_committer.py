"""IcebergCommitter: one snapshot of the table for each checkpoint, with the ledger in the same commit.

The ledger is a property of the table, which a snapshot's expiry leaves alone. The order of a commit, and what
a crash leaves in each gap:

1. `last_committed` loads the table anew. All that follows is done on top of what it saw.
2. All data files are found. One that is not was lost: the job ends with a sentence, and nothing happened.
   By key: the changes are read, and the files that have their keys are written anew, beside the old ones.
   Crash: files that nobody names.
3. Manifests are written. Crash: files that nobody names.
4. The catalog swaps the table's metadata: the new snapshot and the ledger, if the branch still has the
   snapshot that was seen in 1. Another one there: the commit is refused, and 1 comes again. Crash, or no
   answer: the ledger says whether it is there.

pyiceberg's own commit is not used: it rebases an append on whatever has come between, a newer attempt's
commit too, and when it was refused it deletes the manifests, which are the table's if a request was sent
twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ManageSnapshots

from onceflow.connectors.iceberg.branch_swap import swap
from onceflow.connectors.iceberg.catalog_errors import asking, committing
from onceflow.connectors.iceberg.data_files import FOLDER, Describe, as_manifest_entry, file_store
from onceflow.connectors.iceberg.earlier_snapshot import snapshot_at
from onceflow.connectors.iceberg.iceberg_ledger import committed_in, named_checkpoint, says
from onceflow.connectors.iceberg.iceberg_upkeep import IcebergUpkeep
from onceflow.connectors.iceberg.key_rewrite import touched_files
from onceflow.connectors.iceberg.opened_iceberg import add_columns, open_iceberg, where_of
from onceflow.connectors.iceberg.partition_values import IcebergPartitioning
from onceflow.connectors.iceberg.settings import ICEBERG_TYPES, IcebergSettings
from onceflow.connectors.tables.append_writer import written_files
from onceflow.connectors.tables.changes import Changes, read_changes
from onceflow.connectors.tables.columns import fitted
from onceflow.connectors.tables.data_file import DataFile, WrittenFile
from onceflow.connectors.tables.file_names import FileNames, ledger_name
from onceflow.runtime.contracts import Committable, CommitterContext
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import DataLossError, Fatal, Fenced


class IcebergCommitter:
    """A TakingBackCommitter."""

    def __init__(self, settings: IcebergSettings, context: CommitterContext) -> None:
        """Opens the table. Raises Fatal, Unavailable, Indeterminate."""
        self._settings = settings
        self._context = context
        self._where = where_of(settings, context.uid)
        self._ledger = ledger_name(context.lineage, context.uid)
        self._numbers = itertools.count()
        self._upkeep = IcebergUpkeep(settings, self._ledger, self._where)
        self._table: Table | None = None
        """The table as it was when the ledger was asked; None: it has to be asked first."""
        add_columns(open_iceberg(settings, context.schema, context.uid), settings, context.uid)
        with asking(self._where):
            self._catalog = settings.open_catalog()

    def last_committed(self) -> int | None:
        with asking(self._where):
            self._table = self._catalog.load_table(self._settings.table)
        return committed_in(self._table, self._ledger)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        if self._table is None:
            raise Fenced(f"{self._where}: nobody has asked what is committed")
        table, self._table = self._table, None
        if self._settings.key:
            settings, staged = self._settings, self._context.files
            changes = read_changes(committables, staged, settings.key, settings.order_by)
            if changes is None:
                return  # nothing to show: the ledger need not know of it
            with committing(self._where):
                transaction = self._merged(table, checkpoint_id, changes)
        else:
            files = written_files(committables)
            if not files:
                return
            self._check_files(table, files, checkpoint_id)
            with committing(self._where):
                transaction = self._appended(table, checkpoint_id, files)
        with committing(self._where):
            self._swap(table, transaction, checkpoint_id)
        self._upkeep.on_commit()

    def take_back(self, checkpoint_id: int, went_back: WentBack, committables: Sequence[Committable]) -> None:
        """See TakingBackCommitter: the branch goes back to an older snapshot, in one commit with the ledger.
        Snapshots of others in between are refused."""
        table, self._table = self._table, None
        assert table is not None, "it was asked"
        older = snapshot_at(table, self._ledger, went_back.to, went_back.past, self._where)
        with committing(self._where):
            transaction = table.transaction()
            if older is None:
                said = named_checkpoint(self._ledger, checkpoint_id)
                transaction.delete(AlwaysTrue(), snapshot_properties=said)
            elif (now := table.current_snapshot()) is not None and older != now.snapshot_id:
                ManageSnapshots(transaction).set_current_snapshot(older).commit()
            self._swap(table, transaction, checkpoint_id)

    def close(self) -> None:
        self._upkeep.close()

    def _swap(self, table: Table, transaction: Transaction, checkpoint_id: int) -> None:
        transaction.set_properties(says(self._ledger, checkpoint_id))
        swap(self._catalog, table, transaction)

    # --- Without a key ---

    def _appended(self, table: Table, checkpoint_id: int, files: Sequence[WrittenFile]) -> Transaction:
        transaction = table.transaction()
        said = named_checkpoint(self._ledger, checkpoint_id)
        with transaction.update_snapshot(snapshot_properties=said).merge_append() as append:
            for file in files:
                append.append_data_file(as_manifest_entry(file, table.location()))
        return transaction

    def _check_files(self, table: Table, files: Sequence[WrittenFile], checkpoint_id: int) -> None:
        store = file_store(table, self._where)
        for file in files:
            if file.partition["spec"] != table.spec().spec_id:
                raise Fatal(
                    f"{self._where}: its partitions were changed since files of checkpoint {checkpoint_id} "
                    "were written: set them back to what they were, start the job, and change them while it "
                    "is down"
                )
            if store.size(file.path) != file.bytes:
                raise DataLossError(
                    f"{self._where}: {file.path} is not there as a slot wrote it for checkpoint "
                    f"{checkpoint_id}: slots on other machines have to see the same storage as the driver, "
                    "and remove_orphan_files must keep files for longer than the job is down"
                )

    # --- By key ---

    def _merged(self, table: Table, checkpoint_id: int, changes: Changes) -> Transaction:
        key = list(self._settings.key)
        keys = pa.concat_tables([changes.rows.select(key), changes.deleted])
        transaction = table.transaction()
        removed = []
        added: list[WrittenFile] = self._written(table, checkpoint_id, changes.rows)
        for file, stays in touched_files(table, keys):
            removed.append(file)
            added += self._written(table, checkpoint_id, stays)
        if removed:
            said = named_checkpoint(self._ledger, checkpoint_id)
            with transaction.update_snapshot(snapshot_properties=said).overwrite() as overwrite:
                for file in removed:
                    overwrite.delete_data_file(file)
                for each in added:
                    overwrite.append_data_file(as_manifest_entry(each, table.location()))
        elif added:
            return self._appended(table, checkpoint_id, added)
        return transaction

    def _written(self, table: Table, checkpoint_id: int, rows: pa.Table) -> list[WrittenFile]:
        """Rows in new data files, one for each partition. The driver's are those of subtask 9999."""
        store, names = file_store(table, self._where), FileNames(self._ledger, FOLDER)
        there = schema_to_pyarrow(table.schema())
        schema = fitted(self._context.schema, there, ICEBERG_TYPES, self._where, may_add=False).schema
        describe = Describe(table.schema(), table.properties)
        files: dict[str, DataFile] = {}
        for batch in rows.select(schema.names).cast(schema).to_batches():
            for partition, part in IcebergPartitioning(table.spec(), table.schema()).split(batch):
                if repr(partition) not in files:
                    path = names.name(
                        checkpoint_id, self._context.attempt, 9999, next(self._numbers), "driver"
                    )
                    files[repr(partition)] = DataFile(store, path, schema, partition, describe)
                files[repr(partition)].write(part)
        return [file.finish() for file in files.values()]
