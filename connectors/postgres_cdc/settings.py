"""What a source of changes was told, as its parts need it, and how they connect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict

from onceflow.connectors.postgres.conninfo import with_defaults
from onceflow.connectors.postgres.server_errors import meaning
from onceflow.connectors.postgres_cdc.text_columns import SESSION
from onceflow.connectors.sql_tables.table import TableName
from onceflow.runtime.errors import Fatal, OnceflowError

_NAME_BYTES = 63
"""The server cuts longer names of applications."""
Connection = psycopg.Connection[Any]


@dataclass(frozen=True, slots=True)
class CdcSettings:
    """See PostgresCdcSource, whose arguments these are."""

    conninfo: str = field(repr=False)
    table: TableName
    slot: str
    publication: str
    schema: pa.Schema
    """The columns of the table that are read."""
    reads_table: bool
    needs_before: bool
    creates_slot: bool
    is_bounded: bool
    skips_truncates: bool
    timeout_ms: int

    @property
    def where(self) -> str:
        """What a sentence about the source begins with."""
        return f"PostgreSQL table {self.table}"


def application_name(job: str, uid: str) -> str:
    """The name by which the server tells the connections of this source from others."""
    return f"onceflow {job} {uid}".encode()[:_NAME_BYTES].decode(errors="ignore")


def connect(settings: CdcSettings, name: str) -> Connection:
    """A connection of this application for queries. Raises Retryable or Fatal."""
    return _connect(settings, application_name=name)


def connect_for_replication(settings: CdcSettings, name: str) -> Connection:
    """A connection that takes commands of replication, by `simple`. Raises Retryable or Fatal."""
    return _connect(settings, application_name=name, replication="database")


def _connect(settings: CdcSettings, **said: str) -> Connection:
    options = f"{conninfo_to_dict(settings.conninfo).get('options') or ''} {SESSION}".strip()
    conninfo = with_defaults(settings.conninfo, options=options, **said)
    try:
        return psycopg.connect(conninfo, autocommit=True)
    except psycopg.Error as error:
        raise raised(error, f"{settings.where}: connecting") from error


def raised(error: psycopg.Error, doing: str) -> OnceflowError:
    """What an error of the server means for a reader: a value is never to blame."""
    found = meaning(error, doing)
    return found if isinstance(found, OnceflowError) else Fatal(f"{doing}: {found}")


def lsn_of(text: str) -> int:
    """A place in the log as a number: 16/B374D848."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """A place in the log as people write it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
