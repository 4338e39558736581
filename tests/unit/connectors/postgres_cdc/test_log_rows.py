"""Messages of the log as rows: what was taken before a restart, or read with the table, does not come
again."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.postgres_cdc.log_rows import LogRow, LogRows
from onceflow.connectors.postgres_cdc.position import CdcPosition
from onceflow.connectors.postgres_cdc.settings import CdcSettings
from onceflow.connectors.sql_tables.table import TableName
from onceflow.runtime.errors import Fatal

SETTINGS = CdcSettings(
    conninfo="",
    table=TableName("public", "t"),
    slot="s",
    publication="p",
    schema=pa.schema([("name", pa.string())]),
    reads_table=True,
    needs_before=True,
    creates_slot=True,
    is_bounded=False,
    skips_truncates=False,
    timeout_ms=1_000,
)
START = CdcPosition("7", ("id",), (True,), False, 100)
TABLE, OTHER = 5, 6


def relation(oid: int, name: str, *columns: str) -> bytes:
    each = b"".join(b"\0" + column.encode() + b"\0" + struct.pack(">Ii", 25, -1) for column in columns)
    return (
        b"R"
        + struct.pack(">I", oid)
        + b"public\0"
        + name.encode()
        + b"\0f"
        + struct.pack(">H", len(columns))
        + each
    )


def begin(commit_lsn: int, xid: int = 50) -> bytes:
    return b"B" + struct.pack(">QqI", commit_lsn, 0, xid)


def commit(end_lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, end_lsn - 1, end_lsn, 0)


def row(*values: str | None) -> bytes:
    each = b"".join(b"n" if v is None else b"t" + struct.pack(">I", len(v)) + v.encode() for v in values)
    return struct.pack(">H", len(values)) + each


def insert(oid: int, *values: str | None) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + row(*values)


def update(old: Sequence[str], new: Sequence[str]) -> bytes:
    return b"U" + struct.pack(">I", TABLE) + b"O" + row(*old) + b"N" + row(*new)


def feed(log: LogRows, *messages: bytes | int, count: int = 1_000) -> list[Any]:
    """What they bring, of which `count` is taken."""
    came = [what for message in messages for what in log.feed(message)]
    for what in came[:count]:
        log.took(what)
    return [(each.kind.name, each.key, each.values) if isinstance(each, LogRow) else each for each in came]


TABLES = (relation(TABLE, "t", "id", "name"), relation(OTHER, "other", "id", "name"))


def test_rows_of_the_table_come_and_those_of_others_do_not() -> None:
    log = LogRows(SETTINGS, START)
    inserts = (insert(TABLE, "1", "a"), insert(OTHER, "2", "b"), insert(TABLE, "3", None))
    assert feed(log, *TABLES, begin(150), *inserts, commit(160)) == [
        ("INSERT", ("1",), [b"a"]), ("INSERT", ("3",), [None]), 160,
    ]  # fmt: skip
    assert log.position() == START.at(160)


def test_between_any_two_rows_a_restart_goes_on_exactly() -> None:
    messages = (
        *TABLES,
        begin(150),
        update(("1", "a"), ("1", "b")),
        update(("1", "b"), ("2", "b")),
        commit(160),
    )
    whole = feed(LogRows(SETTINGS, START), *messages)
    assert [kind for kind, *_ in whole[:-1]] == ["UPDATE_BEFORE", "UPDATE_AFTER", "DELETE", "INSERT"]
    for count in range(len(whole)):
        log = LogRows(SETTINGS, START)
        feed(log, *messages, count=count)
        assert feed(LogRows(SETTINGS, log.position()), 120, *messages)[1:] == whole[count:], count


def test_a_row_that_the_table_had_is_left_out_and_still_counted() -> None:
    reading = replace(START, is_reading_table=True)
    position = (
        reading.begin_range("60:60:", 200).after_rows(("5",), 1).begin_range("40:40:", 200).after_table()
    )
    log = LogRows(SETTINGS, position)
    messages = (
        *TABLES,
        begin(150, xid=50),
        insert(TABLE, "1", "a"),
        insert(TABLE, "9", "b"),
        insert(TABLE, "7", "c"),
    )
    assert feed(log, *messages, count=1) == [("INSERT", ("9",), [b"b"]), ("INSERT", ("7",), [b"c"])]
    assert log.position().rows_of_commit == 2
    assert feed(LogRows(SETTINGS, log.position()), *messages) == [("INSERT", ("7",), [b"c"])]


def test_places_that_the_server_names_inside_a_transaction_move_nothing() -> None:
    log = LogRows(SETTINGS, START)
    feed(log, *TABLES, begin(150), insert(TABLE, "1", "a"), 140)
    assert (log.position().lsn, log.position().commit_lsn) == (100, 150)
    assert feed(log, commit(160), 170) == [160, 170]
    assert log.position().lsn == 170


def test_a_bounded_source_stops_before_what_is_committed_later() -> None:
    log = LogRows(SETTINGS, replace(START, stop_lsn=150))
    assert feed(log, *TABLES, begin(150)) == [150]
    assert log.position().is_at_stop


def test_a_column_that_goes_ends_the_job() -> None:
    with pytest.raises(Fatal, match="has no column 'name' any more, from 0/64 of the log on"):
        LogRows(SETTINGS, START).feed(relation(TABLE, "t", "id", "other"))
    with pytest.raises(Fatal, match="has no column 'id' any more"):
        LogRows(SETTINGS, START).feed(relation(TABLE, "t", "name"))


def test_a_truncated_table_ends_the_job_and_another_one_does_not() -> None:
    def truncate(oid: int) -> bytes:
        return b"T" + struct.pack(">IBI", 1, 0, oid)

    log = LogRows(SETTINGS, START)
    assert feed(log, *TABLES, begin(150), truncate(OTHER)) == []
    with pytest.raises(Fatal, match="was truncated"):
        log.feed(truncate(TABLE))
    skipping = LogRows(replace(SETTINGS, skips_truncates=True), START)
    assert feed(skipping, *TABLES, begin(150), truncate(TABLE)) == []
