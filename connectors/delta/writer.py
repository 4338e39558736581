"""The writers of a Delta sink: data files without a key, changes with one."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from onceflow.connectors.delta.columns import DeltaPartitioning, described, refuse_empty
from onceflow.connectors.delta.library_errors import asking
from onceflow.connectors.delta.opened_table import open_table
from onceflow.connectors.delta.settings import DeltaSettings
from onceflow.connectors.tables.append_writer import AppendedTable, AppendWriter
from onceflow.connectors.tables.changes import ChangesWriter
from onceflow.connectors.tables.file_names import FileNames, ledger_name
from onceflow.runtime.contracts import SinkContext, SinkWriter


def open_writer(settings: DeltaSettings, context: SinkContext) -> SinkWriter:
    """The writer of one slot. Raises Fatal where the rows or the table do not fit, Unavailable."""
    opened = open_table(settings, context.schema, context.uid)
    where, partition_by = f"sink {context.uid!r}", opened.partition_by
    if settings.key:
        check = partial(refuse_empty, partition_by=partition_by, where=where)
        return ChangesWriter(context, opened.columns, settings.key, check)
    ledger = ledger_name(context.lineage, context.uid)
    with asking(where):
        last_committed = opened.table.transaction_version(ledger)
    schema = opened.columns.schema
    kept = [name for name in schema.names if name not in partition_by]
    return AppendWriter(
        context,
        AppendedTable(
            store=settings.file_store(),
            names=FileNames(ledger),
            columns=opened.columns,
            partitioning=DeltaPartitioning(where, partition_by, kept),
            file_schema=pa.schema([schema.field(name) for name in kept]),
            describe=described,
            last_committed=last_committed,
        ),
    )
