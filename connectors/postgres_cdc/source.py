"""PostgresCdcSource: a table as it is, and then each of its changes, by logical replication."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance, TolerantSource
from onceflow.connectors.collections.python_rows import RowType, row_type
from onceflow.connectors.extras import needs_extra
from onceflow.connectors.message_fields import check_distinct
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, ReaderContext, Sink
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.postgres_cdc.batches import CdcPlanner
    from onceflow.connectors.postgres_cdc.enumerator import CdcEnumerator
    from onceflow.connectors.postgres_cdc.reader import CdcReader
    from onceflow.connectors.postgres_cdc.settings import CdcSettings

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_ADDED: Mapping[str, pa.DataType] = {"commit_time": pa.timestamp("ms", "UTC"), "lsn": pa.int64()}


@explained
@dataclass(frozen=True, kw_only=True)
class PostgresCdcSource(TolerantSource):
    """Reads a table of PostgreSQL and then each of its changes, as rows that are inserted, updated and
    deleted. A Source and a ChangelogSource; connects only when the job runs. Needs `pip install
    'onceflow[postgres]'`.

    Each change counts once: the position is a place in the server's log, and inside a transaction the number
    of its rows. The slot keeps the log back until a checkpoint is complete that has read it.
    """

    url: str = field(repr=False)
    """"postgresql://user@host/database", as psql takes it; a password is better left to PGPASSWORD,
    PGPASSFILE or a service file, which are read in the slots. The role needs REPLICATION, and SELECT on the
    table."""
    table: str
    """"orders" (in the schema public) or "shop.orders"."""
    of: Any
    """The rows: a record type or an Arrow schema, whose fields are columns of the table."""
    slot: str
    """The replication slot; of this source alone."""
    publication: str
    """A publication that has the table, with inserts, updates and deletes."""
    start: Literal["table", "slot"] = "table"
    """At the very first start: "table": all rows of the table, then its changes; "slot": the changes that the
    slot has, without the rows that are there."""
    before: Literal["required", "optional"] = "required"
    """"required": the table has REPLICA IDENTITY FULL, so that each update and delete has its row as it was.
    "optional": an update may be its new row alone, and a delete its key alone: enough for a sink by key,
    while a filter may leave the old row there, and a join is refused."""
    truncate: Literal["refuse", "skip"] = "refuse"
    """What a TRUNCATE of the table does: it ends the job, or the rows that came from it stay."""
    create_slot: bool = True
    """Whether the slot is made at the very first start, if it is not there."""
    bounded: bool = False
    """Whether the source ends with what is committed at the very first start."""
    commit_time_column: str | None = None
    lsn_column: str | None = None
    """Names of columns with the time at which a change was committed, and its place in the log; null in rows
    of the table as it was read."""
    timeout: str | int = "2 min"
    """How long the server may be away before the attempt fails."""
    errors_tolerance: Tolerance = "none"
    """"none": a row that is none of `of` ends the job. "all": it goes to dead_letters."""
    dead_letters: Sink | None = None
    """Any sink for rows that are none of `of`; errors_tolerance is then "all"."""
    columns: frozenset[str] | None = field(default=None, repr=False)
    """Set by project(): the columns that the job reads."""

    def __post_init__(self) -> None:
        _check(self)

    # --- Source ---

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f for f in self._all_fields() if self.columns is None or f.name in self.columns])

    @property
    def record_type(self) -> type | None:
        return self._rows.record_type

    @property
    def is_bounded(self) -> bool:
        return self.bounded

    @property
    def has_kinds(self) -> bool:
        """See ChangelogSource."""
        return True

    @property
    def lacks_before(self) -> bool:
        """See PartialChangelogSource."""
        return self.before == "optional"

    @property
    def plan_note(self) -> str:
        rows = "the table's rows, then its changes" if self.start == "table" else "the table's changes"
        return f"exactly once: {rows}, by their place in the server's log; the slot moves on with checkpoints"

    def ended(self, until: Json) -> PostgresCdcSource:
        """See EndableSource."""
        if until != "latest":
            raise OptionError(
                "PostgreSQL's log is not looked up by time or by what another job has read: write latest, "
                "for what is committed when the job starts"
            )
        return replace(self, bounded=True)

    def open_enumerator(self, job: str, clock: Clock) -> CdcEnumerator:
        from onceflow.connectors.postgres_cdc.enumerator import CdcEnumerator
        from onceflow.connectors.postgres_cdc.settings import application_name

        return CdcEnumerator(self._settings(self._rows.schema), application_name(job, "driver"))

    def open_reader(self, context: ReaderContext) -> CdcReader:
        from onceflow.connectors.postgres_cdc.reader import Added, CdcReader

        names = self.schema.names
        table = pa.schema([f for f in self._rows.schema if f.name in names])
        added = {what: name for what, name in self._added().items() if name in names}
        beside = Added(self.schema, added.get("commit_time"), added.get("lsn"), self.tolerates_bad)
        return CdcReader(self._settings(table), beside, context)

    # --- What it may do beyond that ---

    def open_planner(self, clock: Clock, limit: BatchLimit) -> CdcPlanner:
        """See BatchedSource: the changes alone, start="slot"."""
        from onceflow.connectors.postgres_cdc.batches import CdcPlanner
        from onceflow.connectors.postgres_cdc.settings import application_name

        name = application_name("structured-streaming", "driver")
        return CdcPlanner(self._settings(self._rows.schema), name, clock, limit)

    def project(self, columns: frozenset[str]) -> PostgresCdcSource:
        """See ProjectableSource."""
        return replace(self, columns=columns)

    # --- Parts ---

    @cached_property
    def _rows(self) -> RowType:
        return row_type(self.of, "PostgresCdcSource")

    def _added(self) -> dict[str, str]:
        named = {"commit_time": self.commit_time_column, "lsn": self.lsn_column}
        return {what: name for what, name in named.items() if name is not None}

    def _all_fields(self) -> list[pa.Field]:
        return [*self._rows.schema, *(pa.field(name, _ADDED[what]) for what, name in self._added().items())]

    def _settings(self, schema: pa.Schema) -> CdcSettings:
        from onceflow.connectors.postgres_cdc.settings import CdcSettings
        from onceflow.connectors.sql_tables.table import TableName

        named = TableName.of(self.table)
        return CdcSettings(
            conninfo=self.url,
            table=TableName(named.schema or "public", named.name),
            slot=self.slot,
            publication=self.publication,
            schema=schema,
            reads_table=self.start == "table",
            needs_before=self.before == "required",
            creates_slot=self.create_slot,
            is_bounded=self.bounded,
            skips_truncates=self.truncate == "skip",
            timeout_ms=duration_ms(self.timeout, "timeout"),
        )


def _check(source: PostgresCdcSource) -> None:
    with needs_extra("PostgresCdcSource", "postgres"):
        import psycopg  # noqa: F401

    for name in ("url", "table", "publication"):
        if not (isinstance(getattr(source, name), str) and getattr(source, name)):
            raise OptionError(f"PostgresCdcSource: {name} must be a text that is not empty")
    if not (isinstance(source.slot, str) and _SLOT.fullmatch(source.slot)):
        raise OptionError(
            f"PostgresCdcSource: slot={source.slot!r}: use small letters, digits and _, 63 at most, as "
            "PostgreSQL wants it"
        )
    for name, known in (
        ("start", ("table", "slot")),
        ("before", ("required", "optional")),
        ("truncate", ("refuse", "skip")),
    ):
        given = getattr(source, name)
        if given not in known:
            raise OptionError(f"PostgresCdcSource: {name}={given!r}: write {' or '.join(map(repr, known))}")
    duration_ms(source.timeout, "timeout")
    source.settle_tolerance()
    if source._rows.is_value:
        raise OptionError(f"PostgresCdcSource: of={source.of!r}: give a record type or an Arrow schema")
    check_distinct([each.name for each in source._all_fields()])
