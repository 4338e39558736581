"""Tables of a real PostgreSQL whose changes are read, for tests of that source."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.records import RowKind
from tests.postgres_server import PostgresServer

WAIT_S = 240
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
MANY_SLOTS = {"max_replication_slots": "200", "max_wal_senders": "40"}


@dataclass
class Table:
    """A table in a publication; `source(...)`: its changes."""

    server: PostgresServer
    name: str

    def source(self, **options: Any) -> PostgresCdcSource:
        given = {"url": self.server.url, "of": SCHEMA, "slot": self.name, "publication": self.name, **options}
        return PostgresCdcSource(table=self.name, **given)


def make_table(
    server: PostgresServer, columns: str = "id bigint PRIMARY KEY, name text", identity: str = "FULL"
) -> Table:
    """A new one, in a publication of its name."""
    name = f"t{uuid.uuid4().hex[:10]}"
    server.execute(
        f"CREATE TABLE {name} ({columns})",
        f"ALTER TABLE {name} REPLICA IDENTITY {identity}",
        f"CREATE PUBLICATION {name} FOR TABLE {name}",
    )
    return Table(server, name)


def first_splits(source: PostgresCdcSource) -> list[SplitState]:
    enumerator = source.open_enumerator("job", SystemClock())
    return [through_json(split) for split in enumerator.initial_splits()]


def through_json(split: SplitState) -> SplitState:
    return SplitState(split.split_id, json.loads(json.dumps(split.position)))


def open_reader(source: PostgresCdcSource, splits: Sequence[SplitState]) -> Any:
    reader = source.open_reader(ReaderContext("job", "uid", 0, 1, SystemClock()))
    reader.add_splits(splits)
    return reader


def read(reader: Any, until: Callable[[list[Any]], bool], count: int = 1_000) -> list[tuple[RowKind, Any]]:
    """What it brings until `until` says so, or it has finished."""
    seen: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while not until(seen):
        assert time.monotonic() < deadline, f"{len(seen)} rows within {WAIT_S} s: {seen[-3:]}"
        fetch: Fetch | None = reader.poll(0, count)
        if fetch is None:
            threading.Event().wait(0.005)
            continue
        seen += changes(fetch)
        if fetch.finished:
            break
    return seen


def changes(fetch: Fetch) -> list[tuple[RowKind, Any]]:
    rows = fetch.records.to_pylist()
    kinds = [0] * len(rows) if fetch.kind is None else fetch.kind.tolist()
    return [(RowKind(kind), row) for kind, row in zip(kinds, rows, strict=True)]


def never(seen: list[Any]) -> bool:
    return False


def is_long(count: int) -> Callable[[list[Any]], bool]:
    return lambda seen: len(seen) >= count


def ends_with(error: type[Exception], said: str, source: PostgresCdcSource, splits: Any) -> None:
    with closing(open_reader(source, splits)) as reader, pytest.raises(error, match=said):
        read(reader, never)


def values(seen: Sequence[tuple[RowKind, Any]]) -> list[tuple[str, tuple[Any, ...]]]:
    return [(kind.name, tuple(row.values())) for kind, row in seen]


def apply(state: dict[Any, Any], seen: Sequence[tuple[RowKind, Any]]) -> None:
    """What a table is after these changes, each of which has to fit what was there."""
    for kind, row in seen:
        key, name = row["id"], row["name"]
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            assert key not in state, f"{kind.name} {row}, and there is {state[key]}"
            state[key] = name
        else:
            assert state.pop(key, "nothing") == name, f"{kind.name} {row}"
