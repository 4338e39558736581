"""Messages of pgoutput, as the documents of PostgreSQL lay them out."""

from __future__ import annotations

from struct import pack

from onceflow.connectors.postgres_cdc.messages import (
    EPOCH_MS,
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Relation,
    Truncate,
    parse,
)


def test_each_message_is_what_it_says() -> None:
    row = pack(">H", 3) + b"t" + pack(">I", 2) + b"ab" + b"n" + b"u"
    values = [b"ab", None, UNCHANGED]
    five = pack(">I", 5)
    assert parse(b"B" + pack(">QqI", 7, 2_000_000, 9)) == Begin(7, EPOCH_MS + 2_000, 9)
    assert parse(b"C" + pack(">BQQq", 0, 7, 8, 0)) == Commit(8)
    columns = b"\1id\0" + pack(">Ii", 20, -1) + b"\0name\0" + pack(">Ii", 25, -1)
    relation = b"R" + five + b"shop\0orders\0d" + pack(">H", 2) + columns
    assert parse(relation) == Relation(5, "shop", "orders", ("id", "name"))
    assert parse(b"I" + five + b"N" + row) == Change(5, True, None, values)
    assert parse(b"U" + five + b"N" + row) == Change(5, False, None, values)
    assert parse(b"U" + five + b"K" + row + b"N" + row) == Change(5, False, values, values, True)
    assert parse(b"U" + five + b"O" + row + b"N" + row) == Change(5, False, values, values, False)
    assert parse(b"D" + five + b"K" + row) == Change(5, False, values, None, True)
    assert parse(b"D" + five + b"O" + row) == Change(5, False, values, None, False)
    assert parse(b"T" + pack(">IBII", 2, 0, 5, 6)) == Truncate((5, 6))
    assert parse(b"Y" + five) is None
