"""DeltaSink: rows into a Delta Lake table, exactly once: appended, or updated and deleted by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.named_columns import check_columns, check_order, columns_given, how_rows_go
from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.contracts import CommitterContext, SinkCommitter, SinkContext, SinkWriter
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.delta.settings import DeltaSettings

_DAY_MS = 86_400_000
_UNSAFE = ("allow_unsafe_rename", "aws_s3_allow_unsafe_rename")


@explained
@dataclass(frozen=True, slots=True)
class DeltaSink:
    """Writes each row into the Delta table at `url`, by the columns' names. A Sink; opens nothing when it is
    made. Needs `pip install 'onceflow[delta]'`.

    The slots write Parquet files into the table's storage, which nobody sees. Once a checkpoint is durable
    the driver makes those of all slots visible by one commit, which also says which checkpoint it was:
    whatever is killed when, each row is there once, and a reader sees a checkpoint whole or not at all.

    `url`: a path, or a URL such as "s3://bucket/orders"; `storage_options`: what the deltalake library is
    given for it (endpoints, credentials), which is better left to the environment of driver and slots.

    `key`: the column or columns that identify a row. Without one rows are appended. With one a row replaces
    the one with its key, deletes of a changelog delete it, and the last row of a key in a checkpoint counts.
    The changes wait in the checkpoint folder, and the driver merges them into the table (MERGE), which
    writes each file anew that has one of the keys.

    `order_by`: of several rows of a key in one checkpoint the one with the highest value in this column
    counts, and not the last one: for rows that come in no order, as from several tasks of Spark. Rows only,
    and no changelog.

    `create_table`: make the table if it is not there, partitioned by `partition_by`. `schema_evolution`:
    "add" gives the table columns that the rows have and it does not; else these are refused, as is every
    other difference that would change a value.

    `compact_every`: after so many commits, make few large files of many small ones. `expire`: delete files
    that were removed longer ago than this ("7 d"), so that the table can no more be read as it was before.
    `only_writer`: on S3 a table is refused that Spark has lately written to, since Spark replaces commits of
    others there; say True if it only reads from now on.
    """

    url: PathText
    key: str | Sequence[str] | None = None
    partition_by: str | Sequence[str] = ()
    create_table: bool = False
    schema_evolution: Literal["add"] | None = None
    compact_every: int | None = None
    expire: str | int | None = None
    only_writer: bool = False
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    order_by: str | None = None

    def __post_init__(self) -> None:
        url = path_text(self.url)
        if not (isinstance(url, str) and url):
            raise OptionError('DeltaSink: url must be a path or a URL, such as "s3://bucket/orders"')
        if "://" not in url:  # slots may run in another folder
            url = str(Path(url).expanduser().absolute())
        object.__setattr__(self, "url", url)
        if url.startswith("file://"):
            raise OptionError(f"DeltaSink: url {url!r}: give the path without file://")
        if self.schema_evolution not in (None, "add"):
            raise OptionError(
                f'DeltaSink: schema_evolution={self.schema_evolution!r}: "add", or leave it out'
            )
        if self.compact_every is not None and not (
            type(self.compact_every) is int and self.compact_every >= 2
        ):
            raise OptionError(f"DeltaSink: compact_every={self.compact_every!r} must be 2 commits or more")
        if self.expire is not None and duration_ms(self.expire, "expire") < _DAY_MS:
            raise OptionError(
                f"DeltaSink: expire={self.expire!r} is less than a day, and would take files from under "
                "whoever reads the table: say 1 d or more"
            )
        for name, value in self.storage_options.items():
            if name.lower() in _UNSAFE and str(value).lower() in ("true", "1"):
                raise OptionError(
                    f"DeltaSink: storage option {name!r} lets one writer replace the commit of another: "
                    "leave it out"
                )
        if self.order_by is not None and not self.key:
            raise OptionError(
                f"DeltaSink: order_by={self.order_by!r} says which row of a key counts: give key=, too"
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
        return f"exactly once: {how}, one commit of the table for each checkpoint"

    def check(self, schema: pa.Schema, uid: str) -> None:
        from onceflow.connectors.delta.settings import DELTA_TYPES

        DELTA_TYPES.check(schema, uid)
        check_columns("key", self.partition_columns, schema, uid)
        check_order(self.order_by, self.partition_columns, schema, uid)
        check_columns("partition", columns_given(self.partition_by), schema, uid)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        from onceflow.connectors.delta.writer import open_writer

        return open_writer(self._settings(), context)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        from onceflow.connectors.delta.delta_committer import DeltaCommitter

        return DeltaCommitter(self._settings(), context)

    def _settings(self) -> DeltaSettings:
        return _settings_type()(
            url=path_text(self.url),
            storage_options=self.storage_options,
            key=self.partition_columns,
            partition_by=columns_given(self.partition_by),
            create_table=self.create_table,
            may_add_columns=self.schema_evolution == "add",
            only_writer=self.only_writer,
            compact_every=self.compact_every,
            expire_ms=None if self.expire is None else duration_ms(self.expire, "expire"),
            order_by=self.order_by,
        )


def _settings_type() -> type[DeltaSettings]:
    """Raises UsageError if the packages are not there."""
    with needs_extra("DeltaSink", "delta"):
        from onceflow.connectors.delta.settings import DeltaSettings
    return DeltaSettings
