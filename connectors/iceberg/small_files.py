"""Small data files of an Iceberg table are joined: one large file takes the place of many, in a snapshot that
changes no row.

Only files that a sink of onceflow has written are joined, those of one partition, and none that has deletes
of others. The snapshot says that it is of the checkpoint that was the last one when it was made, since it has
the same rows: so a job can go back over it.

The large file is written first, which takes a while; then the files are exchanged on top of the table as it
is by then, if all of the small ones are still there as they were. Whoever commits in between, this sink too,
is not held up, and neither side can undo the other: both commit only on top of the snapshot that they saw.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask, Table

from onceflow.connectors.iceberg.branch_swap import swap
from onceflow.connectors.iceberg.data_files import FOLDER, Describe, as_manifest_entry, file_store
from onceflow.connectors.iceberg.iceberg_ledger import committed_in, named_checkpoint
from onceflow.connectors.iceberg.partition_values import IcebergPartitioning
from onceflow.connectors.iceberg.settings import IcebergSettings
from onceflow.connectors.tables.data_file import DataFile, WrittenFile

SMALL_BYTES = 32 << 20
"""A file of this size is not joined any more."""
_JOINED_BYTES_MAX = 128 << 20
_AT_ONCE_BYTES_MAX = 512 << 20
"""What is read in one go; the rest is left for the next time."""
_TRIES = 10


@dataclass(frozen=True, slots=True)
class Joined:
    """One file, and the paths of those that it takes the place of."""

    file: WrittenFile
    of: frozenset[str]


def join_small_files(settings: IcebergSettings, ledger: str, where: str) -> None:
    """Join what there is to join. Raises what the catalog's client and the storage raise: nothing is done
    then, or all is."""
    catalog = settings.open_catalog()
    exchange(catalog, settings.table, ledger, write_joined(catalog, settings.table, ledger, where))


def write_joined(catalog: Catalog, name: str, ledger: str, where: str) -> Sequence[Joined]:
    """The large files. They belong to no table yet."""
    table = catalog.load_table(name)
    return [_join(table, ledger, where, tasks) for tasks in _to_join(table)]


def _to_join(table: Table) -> Iterator[Sequence[FileScanTask]]:
    """The small files, by partition, two or more at a time."""
    by_partition: dict[str, list[FileScanTask]] = {}
    for task in _live(table).values():
        if task.file.file_size_in_bytes < SMALL_BYTES:
            by_partition.setdefault(repr(task.file.partition), []).append(task)
    left = _AT_ONCE_BYTES_MAX
    for tasks in by_partition.values():
        group: list[FileScanTask] = []
        room = min(_JOINED_BYTES_MAX, left)
        for task in sorted(tasks, key=lambda task: task.file.file_path):
            if task.file.file_size_in_bytes <= room:
                group.append(task)
                room -= task.file.file_size_in_bytes
        if len(group) > 1:
            left -= sum(task.file.file_size_in_bytes for task in group)
            yield group


def _live(table: Table) -> dict[str, FileScanTask]:
    """The files that may be joined, by their paths, as the table has them now."""
    ours, spec = f"{table.location().rstrip('/')}/{FOLDER}/", table.spec().spec_id
    return {
        task.file.file_path: task
        for task in table.scan().plan_files()
        if task.file.file_path.startswith(ours)
        and task.file.file_format == FileFormat.PARQUET
        and task.file.spec_id == spec
        and not task.delete_files
    }


def _join(table: Table, ledger: str, where: str, tasks: Sequence[FileScanTask]) -> Joined:
    """Write the rows of these files, in their order, into one. It is in a folder in which nobody looks for
    files of dead attempts: it belongs to the table once it is committed, and to nobody before."""
    schema = schema_to_pyarrow(table.schema())
    partitioning = IcebergPartitioning(table.spec(), table.schema())
    path = f"{FOLDER}/{ledger}/joined/{uuid.uuid4().hex}.parquet"
    file: DataFile | None = None
    for task in tasks:  # one is in memory at a time
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        rows = scan.to_table([FileScanTask(task.file)]).cast(schema)
        for batch in filter(len, rows.to_batches()):
            if file is None:
                ((partition, _),) = partitioning.split(batch.slice(0, 1))
                describe = Describe(table.schema(), table.properties)
                file = DataFile(file_store(table, where), path, schema, partition, describe)
            file.write(batch)
    assert file is not None, "files have rows"
    written = file.finish()
    assert written.rows == sum(task.file.record_count for task in tasks), f"{where}: rows are lost"
    return Joined(written, frozenset(task.file.file_path for task in tasks))


def exchange(catalog: Catalog, name: str, ledger: str, joined: Sequence[Joined]) -> None:
    """Put the large files in the place of the small ones, as far as these are still there, in one snapshot.
    Raises CommitFailedException if others were faster each time."""
    for tries_left in reversed(range(_TRIES)):
        table = catalog.load_table(name)
        live = _live(table)
        ready = [each for each in joined if each.of <= live.keys()]
        checkpoint_id = committed_in(table, ledger)
        if not ready or checkpoint_id is None:
            return
        transaction = table.transaction()
        said = named_checkpoint(ledger, checkpoint_id)
        with transaction.update_snapshot(snapshot_properties=said).overwrite() as overwrite:
            for each in ready:
                for path in each.of:
                    overwrite.delete_data_file(live[path].file)
                overwrite.append_data_file(as_manifest_entry(each.file, table.location()))
        try:
            swap(catalog, table, transaction)
            return
        except CommitFailedException:
            if tries_left == 0:
                raise
