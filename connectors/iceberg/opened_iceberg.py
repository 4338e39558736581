"""The Iceberg table of a sink: opened, made, or given the columns that it lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import parse_transform

from onceflow.connectors.iceberg.catalog_errors import asking, committing
from onceflow.connectors.iceberg.partition_values import IcebergPartitioning
from onceflow.connectors.iceberg.settings import ICEBERG_TYPES, IcebergSettings
from onceflow.connectors.tables.columns import FittedColumns, fitted
from onceflow.runtime.errors import Fatal
from onceflow.runtime.nearest import nearest

_FORMAT_VERSIONS = (1, 2)
_TRANSFORM = re.compile(r"(year|month|day|hour)\((.+)\)|(bucket|truncate)\((\d+), *(.+)\)")
_FIRST_PARTITION_ID = 1000
_NEW_TABLE = {"commit.manifest-merge.enabled": "true"}
"""Properties of a table that is made here. A manifest for each checkpoint would stay one otherwise: whoever
reads the table, and each commit by key, opens them all."""


@dataclass(frozen=True, slots=True)
class OpenedIceberg:
    """A table as it was when it was opened, and how rows are written to it."""

    table: Table
    columns: FittedColumns
    partitioning: IcebergPartitioning


def open_iceberg(settings: IcebergSettings, rows: pa.Schema, uid: str) -> OpenedIceberg:
    """Open the table for these rows; make it if it may be made.

    Raises Fatal where the rows or the table do not fit, Unavailable if it can't be read now.
    """
    where = where_of(settings, uid)
    with asking(where):
        catalog = settings.open_catalog()
        table = _there(catalog, settings.table) or _made(catalog, settings, rows, where)
    _refuse(table, settings, rows, where)
    columns = fitted(rows, schema_to_pyarrow(table.schema()), ICEBERG_TYPES, where, settings.may_add_columns)
    partitioning = IcebergPartitioning(table.spec(), table.schema())
    for field, name in partitioning.sources():
        if name not in rows.names:
            raise Fatal(
                f"{where}: partition column {name!r} is not in the rows{nearest(name, rows.names)}: select it"
            )
        try:
            partitioning.values(field, pa.array([], columns.schema.field(name).type))
        except (NotImplementedError, ValueError) as error:
            raise Fatal(
                f"{where}: partition field {field.name!r} is {field.transform}, which is not known here: "
                "write to a table without it"
            ) from error
    return OpenedIceberg(table, columns, partitioning)


def add_columns(opened: OpenedIceberg, settings: IcebergSettings, uid: str) -> None:
    """Give the table the columns that it lacks: a commit of its own, before any row has them. Raises
    Indeterminate if it may not have been done: the attempt fails, and the next one looks again."""
    if not opened.columns.added:
        return
    with committing(f"{where_of(settings, uid)}, new columns"), opened.table.update_schema() as update:
        update.union_by_name(pa.schema(opened.columns.added))


def where_of(settings: IcebergSettings, uid: str) -> str:
    return f"sink {uid!r}, Iceberg table {settings.table}"


def _there(catalog: Catalog, table: str) -> Table | None:
    try:
        return catalog.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _made(catalog: Catalog, settings: IcebergSettings, rows: pa.Schema, where: str) -> Table:
    if not settings.create_table:
        raise Fatal(f"{where}: there is no table: create it before, or say create_table=True")
    schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(ICEBERG_TYPES.new_table(rows)))
    spec = PartitionSpec(*_partition_fields(settings, schema, where))
    try:
        catalog.create_namespace_if_not_exists(settings.table.rpartition(".")[0])
        return catalog.create_table(settings.table, schema, partition_spec=spec, properties=_NEW_TABLE)
    except TableAlreadyExistsError:  # a slot, or the driver, was faster
        return catalog.load_table(settings.table)


def _partition_fields(settings: IcebergSettings, schema: Schema, where: str) -> Iterator[PartitionField]:
    names = [field.name for field in schema.fields]
    for number, given in enumerate(settings.partition_by):
        found = _TRANSFORM.fullmatch(given)
        function, width, column = "identity", None, given
        if found is not None:
            function = found[1] or found[3]
            width, column = found[4], found[2] or found[5]
        if column not in names:
            raise Fatal(
                f"{where}: partition column {column!r} is not in the rows{nearest(column, names)}: name a "
                'column, or year(column), month, day, hour, "bucket(16, column)" or "truncate(4, column)"'
            )
        field = schema.find_field(column)
        transform = parse_transform(function if width is None else f"{function}[{width}]")
        if not transform.can_transform(field.field_type):
            raise Fatal(
                f"{where}: partition_by {given!r}: a column of type {field.field_type} has no {function}: "
                "take another one"
            )
        name = column if function == "identity" else f"{column}_{function}"
        yield PartitionField(
            source_id=field.field_id, field_id=_FIRST_PARTITION_ID + number, transform=transform, name=name
        )


def _refuse(table: Table, settings: IcebergSettings, rows: pa.Schema, where: str) -> None:
    if table.format_version not in _FORMAT_VERSIONS:
        raise Fatal(
            f"{where}: it has format version {table.format_version}, and 1 and 2 can be written: write to "
            "another table"
        )
    if settings.key:
        for field in table.schema().fields:
            if field.name not in rows.names:
                raise Fatal(
                    f"{where}: column {field.name!r} of the table is not in the rows"
                    f"{nearest(field.name, rows.names)}, and with key= a row replaces a whole row: select it"
                )
