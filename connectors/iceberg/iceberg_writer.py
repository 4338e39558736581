"""The writers of an Iceberg sink: data files without a key, changes with one."""

from __future__ import annotations

from onceflow.connectors.iceberg.data_files import FOLDER, Describe, file_store
from onceflow.connectors.iceberg.iceberg_ledger import committed_in
from onceflow.connectors.iceberg.opened_iceberg import open_iceberg, where_of
from onceflow.connectors.iceberg.settings import IcebergSettings
from onceflow.connectors.tables.append_writer import AppendedTable, AppendWriter
from onceflow.connectors.tables.changes import ChangesWriter
from onceflow.connectors.tables.file_names import FileNames, ledger_name
from onceflow.runtime.contracts import SinkContext, SinkWriter


def open_writer(settings: IcebergSettings, context: SinkContext) -> SinkWriter:
    """The writer of one slot. Raises Fatal where the rows or the table do not fit, Unavailable."""
    opened = open_iceberg(settings, context.schema, context.uid)
    if settings.key:
        return ChangesWriter(context, opened.columns, settings.key)
    ledger = ledger_name(context.lineage, context.uid)
    return AppendWriter(
        context,
        AppendedTable(
            store=file_store(opened.table, where_of(settings, context.uid)),
            names=FileNames(ledger, FOLDER),
            columns=opened.columns,
            partitioning=opened.partitioning,
            file_schema=opened.columns.schema,
            describe=Describe(opened.table.schema(), opened.table.properties),
            last_committed=committed_in(opened.table, ledger),
        ),
    )
