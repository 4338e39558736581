"""IcebergSink: rows into an Apache Iceberg table, exactly once: appended, or updated and deleted by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.named_columns import check_columns, check_order, columns_given, how_rows_go
from onceflow.runtime.contracts import CommitterContext, SinkCommitter, SinkContext, SinkWriter
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.iceberg.settings import IcebergSettings

_HOUR_MS = 3_600_000


@explained
@dataclass(frozen=True, slots=True)
class IcebergSink:
    """Writes each row into an Iceberg table, by the columns' names. A Sink; opens nothing when it is made.
    Needs `pip install 'onceflow[iceberg]'`.

    The slots write Parquet files into the table's storage, which nobody sees. Once a checkpoint is durable
    the driver makes those of all slots visible by one snapshot, and the same commit says which checkpoint it
    was: whatever is killed when, each row is there once, and a reader sees a checkpoint whole or not at all.

    `catalog`: the properties of the catalog, as pyiceberg takes them, {"type": "rest", "uri": ...}; or the
    name under which driver and slots find them in their .pyiceberg.yaml or environment. `table`:
    "namespace.table".

    `key`: the column or columns that identify a row. Without one rows are appended. With one a row replaces
    the one with its key, deletes of a changelog delete it, and the last row of a key in a checkpoint counts.
    The changes wait in the checkpoint folder, and the driver writes each data file anew that has one of the
    keys.

    `order_by`: of several rows of a key in one checkpoint the one with the highest value in this column
    counts, and not the last one: for rows that come in no order, as from several tasks of Spark. Rows only,
    and no changelog.

    `create_table`: make the table, and its namespace, if it is not there, partitioned by `partition_by`:
    columns, or year(column), month, day, hour, "bucket(16, column)", "truncate(4, column)".
    `schema_evolution`: "add" gives the table columns that the rows have and it does not; else these are
    refused, as is every other difference that would change a value. `compact_every`: after so many commits,
    make few large files of many small ones, of those that onceflow has written. `expire`: take snapshots that
    are older than this ("7 d") out of the table's metadata.
    """

    catalog: str | Mapping[str, str] = field(repr=False)
    table: str
    key: str | Sequence[str] | None = None
    partition_by: str | Sequence[str] = ()
    create_table: bool = False
    schema_evolution: Literal["add"] | None = None
    expire: str | int | None = None
    order_by: str | None = None
    compact_every: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.catalog, str | Mapping) and self.catalog):
            raise OptionError(
                'IcebergSink: catalog must be properties, such as {"type": "rest", "uri": ...}, or a name'
            )
        if not (isinstance(self.table, str) and all(self.table.split(".")) and "." in self.table):
            raise OptionError(f"IcebergSink: table {self.table!r} must have a namespace, as in shop.orders")
        if self.schema_evolution not in (None, "add"):
            raise OptionError(
                f'IcebergSink: schema_evolution={self.schema_evolution!r}: "add", or leave it out'
            )
        if self.expire is not None and duration_ms(self.expire, "expire") < _HOUR_MS:
            raise OptionError(
                f"IcebergSink: expire={self.expire!r} is less than an hour, and would take snapshots from "
                "under whoever reads the table: say 1 h or more"
            )
        if self.compact_every is not None and not (
            type(self.compact_every) is int and self.compact_every >= 2
        ):
            raise OptionError(f"IcebergSink: compact_every={self.compact_every!r} must be 2 commits or more")
        if self.order_by is not None and not self.key:
            raise OptionError(
                f"IcebergSink: order_by={self.order_by!r} says which row of a key counts: give key=, too"
            )
        _settings_type()

    @property
    def takes_kinds(self) -> bool:
        """See ChangelogSink: without a key there is nothing to update, and what a row was before an update
        comes before what it is then, whatever a column says."""
        return bool(self.partition_columns) and self.order_by is None

    @property
    def settles_keys(self) -> bool:
        """See SettlingSink: a commit has the changes of all writers."""
        return True

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """See PartitionedSink: the engine brings all rows of a key to one subtask."""
        return columns_given(self.key)

    @property
    def takes_back(self) -> bool:
        """See TakingBackSink."""
        return True

    @property
    def plan_note(self) -> str:
        how = how_rows_go(self.partition_columns)
        return f"exactly once: {how}, one snapshot of the table for each checkpoint"

    def check(self, schema: pa.Schema, uid: str) -> None:
        from onceflow.connectors.iceberg.settings import ICEBERG_TYPES

        ICEBERG_TYPES.check(schema, uid)
        check_columns("key", self.partition_columns, schema, uid)
        check_order(self.order_by, self.partition_columns, schema, uid)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        from onceflow.connectors.iceberg.iceberg_writer import open_writer

        return open_writer(self._settings(), context)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        from onceflow.connectors.iceberg.iceberg_committer import IcebergCommitter

        return IcebergCommitter(self._settings(), context)

    def _settings(self) -> IcebergSettings:
        return _settings_type()(
            catalog=self.catalog,
            table=self.table,
            key=self.partition_columns,
            partition_by=columns_given(self.partition_by),
            create_table=self.create_table,
            may_add_columns=self.schema_evolution == "add",
            expire_ms=None if self.expire is None else duration_ms(self.expire, "expire"),
            order_by=self.order_by,
            compact_every=self.compact_every,
        )


def _settings_type() -> type[IcebergSettings]:
    """Raises UsageError if the packages are not there."""
    with needs_extra("IcebergSink", "iceberg"):
        import pyiceberg_core  # noqa: F401

        from onceflow.connectors.iceberg.settings import IcebergSettings
    return IcebergSettings
