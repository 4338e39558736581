"""PostgresLookup: rows of a table, a query or a view, by key, many keys in one query."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from onceflow.connectors.postgres.conninfo import with_defaults
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.types.record_types import arrow_schema


@explained
class PostgresLookup:
    """A table of PostgreSQL for `stream.lookup_join`: `PostgresLookup(url, "users", User, key="name")`.

    `row` has the columns that are read: a record type, or an Arrow schema; `key` is one of them, or several.
    Each subtask has up to `connections` connections, made when they are first needed, and again after one was
    lost; a query asks for at most `keys_at_once` keys. Keys of text are compared as text, whatever their type
    in the table. Needs the extra `postgres`.
    """

    def __init__(
        self,
        conninfo: str,
        table: str,
        row: type | pa.Schema,
        key: str | Sequence[str],
        connections: int = 2,
        keys_at_once: int = 500,
    ) -> None:
        self.schema = row if isinstance(row, pa.Schema) else arrow_schema(row)
        self.keys = (key,) if isinstance(key, str) else tuple(key)
        self.keys_at_once = keys_at_once
        missing = [name for name in self.keys if name not in self.schema.names]
        if missing or not self.keys:
            raise UsageError(
                f"PostgresLookup of {table!r}: key {missing or self.keys!r} is not among the columns it "
                f"reads: name some of {', '.join(self.schema.names)}"
            )
        self._conninfo = conninfo
        self._table = table
        self._connections_max = connections

    async def open(self, ctx: Any) -> None:
        self._free: asyncio.Queue[psycopg.AsyncConnection[Any] | None] = asyncio.Queue()
        for _ in range(self._connections_max):
            self._free.put_nowait(None)

    async def close(self) -> None:
        for _ in range(self._connections_max):
            connection = await self._free.get()
            if connection is not None:
                await connection.close()

    async def look_up(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[tuple[Any, ...], Sequence[Any]]:
        connection = await self._free.get()
        try:
            if connection is None or connection.closed:
                connection = await psycopg.AsyncConnection.connect(
                    with_defaults(self._conninfo), autocommit=True
                )
            cursor = await connection.execute(self._query(len(keys)), [part for key in keys for part in key])
            rows = await cursor.fetchall()
        finally:
            self._free.put_nowait(connection)
        found: dict[tuple[Any, ...], list[Any]] = {}
        names = self.schema.names
        for values in rows:
            row = dict(zip(names, values, strict=True))
            found.setdefault(tuple(row[name] for name in self.keys), []).append(row)
        return found

    def _query(self, count: int) -> sql.Composed:
        columns = sql.SQL(", ").join(map(self._column, self.schema.names))
        keys = sql.SQL(", ").join(map(self._column, self.keys))
        one = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(self.keys)))
        table = sql.Identifier(*self._table.split("."))
        return sql.SQL("SELECT {} FROM {} WHERE ({}) IN ({})").format(
            columns, table, keys, sql.SQL(", ").join([one] * count)
        )

    def _column(self, name: str) -> sql.Composed:
        as_text = pa.types.is_string(self.schema.field(name).type)
        return sql.SQL("{}::text" if as_text else "{}").format(sql.Identifier(name))
