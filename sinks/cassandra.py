"""CassandraSink: each row as a row of a table of Cassandra, updated and deleted exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.connectors.versioned_upserts.keys import check_key, key_columns
from onceflow.connectors.versioned_upserts.target import Upserts
from onceflow.connectors.versioned_upserts.writers import UpsertSettings, upsert_commits
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

LEDGER_TABLE = "onceflow_ledger"


@explained
@dataclass(frozen=True, slots=True)
class CassandraSink:
    """Keeps the last row of each `key` in `table` of `keyspace`, in Cassandra (4 or later). A Sink; opens
    nothing when it is made. Needs `pip install 'onceflow[cassandra]'`.

    A checkpoint's rows wait in the checkpoint folder until it is durable, and are then written, each in one
    statement and with a version as its time (USING TIMESTAMP): readers see them come within moments, never
    one of a checkpoint that was not completed, and a late copy of a write replaces nothing that is newer.
    Deletes of a changelog delete the row.

    `hosts`: servers of one cluster, which name the others. `key`: the columns of the table's primary key, all
    of them; there is no appending without one: a row that is written again would be there twice. The
    engine brings all rows of a key to one subtask. The table has to be there, with a column for each of the
    rows' columns, whose type holds them as they are; columns that the rows lack stay as they are.

    `password`: `${NAME}` in it is a variable of the slots' environment. `tls`: encrypt connections, and check
    the servers' certificates: against those in the file `ca_certs` (None: the system's), and, with
    `check_hostname`, that they are of the address that is connected to. `datacenter`: the one that is asked;
    None: that of the first server. `consistency`: how many replicas have a row before it counts:
    "LOCAL_QUORUM", "QUORUM", "EACH_QUORUM" or "ALL". `bad_rows_to`: a table for rows that can't be written
    (a null in the key, an instant with more than milliseconds), with the reason; it is made, and without it
    such a row ends the job. `ledger_table`: where the ledgers lie, in the same keyspace; it is made.
    `delivery_timeout`: how long the cluster may be away, or too busy, before the attempt fails.
    """

    hosts: str | Sequence[str]
    keyspace: str
    table: str
    key: str | Sequence[str]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    port: int = 9042
    tls: bool = False
    ca_certs: str | None = None
    check_hostname: bool = True
    datacenter: str | None = None
    consistency: str = "LOCAL_QUORUM"
    bad_rows_to: str | None = None
    ledger_table: str = LEDGER_TABLE
    delivery_timeout: str | int = "2 min"

    def __post_init__(self) -> None:
        if not self.key:
            raise OptionError(
                "CassandraSink: without a key nothing can be appended exactly once, since a row that is "
                "written again would be there twice: name the columns of the table's primary key"
            )
        key_columns(self.key, "CassandraSink")
        if not self._hosts or not all(_is_host(host) for host in self._hosts):
            raise OptionError('CassandraSink: hosts must be names or addresses, without a port, as in "db1"')
        if not isinstance(self.port, int) or not 0 < self.port < 1 << 16:
            raise OptionError(f"CassandraSink: port={self.port!r} must be a number from 1 to 65535")
        if (self.username is None) != (self.password is None):
            raise OptionError("CassandraSink: give username and password, or neither")
        if not self.tls and not (self.ca_certs is None and self.check_hostname):
            raise OptionError("CassandraSink: ca_certs and check_hostname are of tls: give tls=True, too")
        tables = [each for each in (self.table, self.ledger_table, self.bad_rows_to) if each is not None]
        for name in (self.keyspace, *tables):
            if not (isinstance(name, str) and name):
                raise OptionError("CassandraSink: a keyspace or table must be a name that is not empty")
        if len(set(tables)) < len(tables):
            raise OptionError("CassandraSink: a table has two purposes: give each a name of its own")
        duration_ms(self.delivery_timeout, "delivery_timeout")
        with needs_extra("CassandraSink", "cassandra"):
            from onceflow.connectors.cassandra.servers import CONSISTENCIES
        if self.consistency not in CONSISTENCIES:
            raise OptionError(
                f"CassandraSink: consistency={self.consistency!r} must be one of {', '.join(CONSISTENCIES)}: "
                "with fewer replicas a row that was acknowledged could be gone in silence"
            )

    @property
    def takes_kinds(self) -> bool:
        """See ChangelogSink."""
        return True

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """See PartitionedSink."""
        return key_columns(self.key, "CassandraSink")

    @property
    def plan_note(self) -> str:
        by = ", ".join(self.partition_columns)
        return f"exactly once: the last row of each {by}, seen row by row once its checkpoint is durable"

    def check(self, schema: pa.Schema, uid: str) -> None:
        check_key(self.partition_columns, schema, uid)

    def open_writer(self, context: SinkContext) -> StagedCommitsWriter:
        return StagedCommitsWriter(context, self.commit_settings(context))

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """See TargetSink."""
        from onceflow.connectors.cassandra.backend import CassandraBackend, TableSettings
        from onceflow.connectors.cassandra.servers import Access, Tls

        login = (self.username, self.password)
        tls = Tls(self.ca_certs, self.check_hostname) if self.tls else None
        access = Access(self._hosts, self.port, *login, self.datacenter, self.consistency, tls)
        key, schema = self.partition_columns, context.schema
        settings = TableSettings(self.keyspace, self.table, key, self.ledger_table, self.bad_rows_to, schema)
        upserts = Upserts(key, f"table {self.keyspace}.{self.table}", self.bad_rows_to is not None)
        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")

        def open_backend() -> CassandraBackend:
            return CassandraBackend(access, settings, context.uid)

        return upsert_commits(context, UpsertSettings("Cassandra sink", upserts, open_backend, timeout_ms))

    @property
    def _hosts(self) -> tuple[str, ...]:
        return (self.hosts,) if isinstance(self.hosts, str) else tuple(self.hosts)


def _is_host(host: object) -> bool:
    return isinstance(host, str) and bool(host) and not set(host) & set("/@ ,") and host.count(":") != 1
