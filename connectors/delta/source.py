"""DeltaSource: the rows of one version of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.files.parquet_files import Parquet
from onceflow.connectors.files.reader import FileReader
from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.plain_types import plain_schema
from onceflow.runtime.types.record_types import arrow_schema

if TYPE_CHECKING:
    from onceflow.connectors.delta.settings import DeltaSettings
    from onceflow.connectors.delta.table_files import TableEnumerator


@dataclass(frozen=True)
class DeltaSource:
    """A Source and a ProjectableSource with an end. A split is a data file of the table, read by one slot
    from its row group and row."""

    settings: DeltaSettings
    version: int | None
    all_columns: pa.Schema
    partition_by: tuple[str, ...]
    counted_by: pa.Field
    """A column of the files: of which they are read if none of theirs is wanted."""
    record_type: type | None
    where: str
    columns: frozenset[str] | None = None
    """The columns that are read; None: all."""

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f for f in self.all_columns if self.columns is None or f.name in self.columns])

    @property
    def is_bounded(self) -> bool:
        return True

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    def project(self, columns: frozenset[str]) -> DeltaSource:
        return replace(self, columns=columns)

    def open_enumerator(self, job: str, clock: Clock) -> TableEnumerator:
        from onceflow.connectors.delta.table_files import TableEnumerator

        return TableEnumerator(self.settings, self.version, self.where)

    def open_reader(self, context: ReaderContext) -> FileReader:
        from onceflow.connectors.delta.table_files import TableStorage

        in_files = [field for field in self.schema if field.name not in self.partition_by]
        decoder = Parquet().decoder(pa.schema(in_files or [self.counted_by]))
        return FileReader(TableStorage(self.settings), decoder, self.schema, context)


@explained
def delta_source(
    url: PathText,
    type: Any = None,
    version: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DeltaSource:
    """The rows of a Delta table, each once, as a source with an end: by itself, or as the history before a
    stream in a HybridSource. Needs `pip install 'onceflow[delta]'`.

    What the table has at the first start of the job is read, or what it had in `version`; what is written
    meanwhile is not. Files come in the order in which they were written, several at once. `type`: a
    dataclass, a NamedTuple or a pyarrow.Schema; None: all columns of the table, as they are.
    `storage_options`: what the deltalake library is given for the URL; better left to the environment.

    VACUUM must keep the files for as long as they are read: one that is gone ends the job. Tables with
    deletion vectors or mapped columns are refused. Raises GraphError and OptionError.
    """
    at = path_text(url)
    where = f"delta_source({at!r})"
    if not (isinstance(at, str) and at):
        raise OptionError(f'{where}: give a path or a URL, such as "s3://bucket/orders"')
    if at.startswith("file://"):
        raise OptionError(f"{where}: give the path without file://")
    if version is not None and not (isinstance(version, int) and version >= 0):
        raise OptionError(f"{where}: version={version!r}: give the number of a version of the table")
    with needs_extra("delta_source", "delta"):
        from onceflow.connectors.delta.opened_table import schema_of
        from onceflow.connectors.delta.settings import DeltaSettings
        from onceflow.connectors.delta.table_files import open_version
    place = at if "://" in at else str(Path(at).expanduser().absolute())
    settings = DeltaSettings.to_read(place, storage_options or {})
    table = open_version(settings, version, where)
    there = plain_schema(schema_of(table))
    columns, record_type = there, None
    if isinstance(type, pa.Schema):
        columns = plain_schema(type)
    elif is_record_type(type):
        columns, record_type = arrow_schema(type), type
    elif type is not None:
        raise GraphError(
            f"{where}: type={type_name(type)} is not a record type: give a dataclass, a NamedTuple or a "
            "pyarrow.Schema"
        )
    for field in columns:
        if field.name not in there.names and not field.nullable:
            raise GraphError(
                f"{where}: the table has no column {field.name!r}{nearest(field.name, there.names)}: make it "
                f"optional, or name one of {', '.join(there.names)}"
            )
    partition_by = tuple(table.metadata().partition_columns)
    counted_by = next(field for field in there if field.name not in partition_by).with_nullable(True)
    return DeltaSource(settings, version, columns, partition_by, counted_by, record_type, where)
