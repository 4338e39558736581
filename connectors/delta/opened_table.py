"""The Delta table of a sink: opened, made, or given the columns that it lacks."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import TableNotFoundError

from onceflow.connectors.delta.columns import can_partition
from onceflow.connectors.delta.library_errors import asking, committing
from onceflow.connectors.delta.refusals import refuse_table
from onceflow.connectors.delta.settings import DELTA_TYPES, DeltaSettings
from onceflow.connectors.tables.columns import FittedColumns, fitted
from onceflow.runtime.errors import Fatal
from onceflow.runtime.nearest import nearest


@dataclass(frozen=True, slots=True)
class OpenedTable:
    """A table as it was when it was opened, and how rows are written to it."""

    table: DeltaTable
    columns: FittedColumns
    partition_by: tuple[str, ...]


def open_table(settings: DeltaSettings, rows: pa.Schema, uid: str) -> OpenedTable:
    """Open the table for these rows; make it if it may be made.

    Raises Fatal where the rows or the table do not fit, Unavailable if it can't be read now.
    """
    where = f"sink {uid!r}, Delta table {settings.url}"
    with asking(where):
        table = _there(settings)
    if table is None:
        table = _made(settings, rows, where)
    with asking(where):
        refuse_table(table, settings, where)
    partition_by = tuple(table.metadata().partition_columns)
    if settings.partition_by and partition_by != settings.partition_by:
        there = f"by {', '.join(partition_by)}" if partition_by else "not at all"
        raise Fatal(
            f"{where}: it is partitioned {there}, and partition_by says {', '.join(settings.partition_by)}: "
            "leave partition_by out, or write to another table"
        )
    columns = fitted(rows, schema_of(table), DELTA_TYPES, where, settings.may_add_columns)
    _check_named(settings, rows, partition_by, where)
    return OpenedTable(table, columns, partition_by)


def add_columns(opened: OpenedTable, settings: DeltaSettings, uid: str) -> None:
    """Give the table the columns that it lacks: a commit of its own, before any row has them. Raises
    Indeterminate if it may not have been done: the attempt fails, and the next one looks again."""
    if not opened.columns.added:
        return
    with committing(f"sink {uid!r}, Delta table {settings.url}, new columns"):
        opened.table.alter.add_columns(
            list(Schema.from_arrow(pa.schema(opened.columns.added)).fields),
            commit_properties=CommitProperties(max_commit_retries=0),
        )


def fresh(settings: DeltaSettings) -> DeltaTable:
    """The table as it is now."""
    return DeltaTable(settings.url, storage_options=dict(settings.storage_options))


def schema_of(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def _there(settings: DeltaSettings) -> DeltaTable | None:
    try:
        return fresh(settings)
    except TableNotFoundError:
        return None


def _made(settings: DeltaSettings, rows: pa.Schema, where: str) -> DeltaTable:
    if not settings.create_table:
        raise Fatal(f"{where}: there is no table: create it before, or say create_table=True")
    _check_named(settings, rows, settings.partition_by, where)
    with committing(f"{where}, making it"):
        DeltaTable.create(
            settings.url,
            DELTA_TYPES.new_table(rows),
            mode="ignore",  # several slots and the driver may be about it
            partition_by=list(settings.partition_by),
            storage_options=dict(settings.storage_options),
        )
    with asking(where):
        return fresh(settings)


def _check_named(settings: DeltaSettings, rows: pa.Schema, partition_by: tuple[str, ...], where: str) -> None:
    for what, names in (("partition", partition_by), ("key", settings.key)):
        for name in names:
            if name not in rows.names:
                raise Fatal(
                    f"{where}: {what} column {name!r} is not in the rows{nearest(name, rows.names)}: "
                    "select it"
                )
    for name in partition_by:
        if not can_partition(rows.field(name).type):
            raise Fatal(
                f"{where}: partition column {name!r} is {rows.field(name).type}, and must be text, a whole "
                "number, a boolean, a date or a time stamp: take another one"
            )
    if len(partition_by) == len(rows.names):
        raise Fatal(f"{where}: all columns are partition columns, so files have none: take fewer")
