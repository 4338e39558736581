"""The messages of pgoutput, version 1, as objects. Pure. Their layout: "Logical Replication Message Formats"
in PostgreSQL's documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct
from typing import Final, TypeAlias

_BEGIN = Struct(">QqI")
_COMMIT = Struct(">BQQq")
_INT16, _INT32 = Struct(">H"), Struct(">I")
EPOCH_MS = 946_684_800_000
"""PostgreSQL counts its times from the year 2000."""


class Unchanged(Enum):
    """What stands for a large value that an update has left as it was: the log does not have it again."""

    UNCHANGED = auto()


UNCHANGED: Final = Unchanged.UNCHANGED
Value: TypeAlias = bytes | Unchanged | None
"""A value as text; None: null."""
Row: TypeAlias = Sequence[Value]


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction, which was committed at `commit_lsn`."""

    commit_lsn: int
    at_ms: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; the next record of the log is at `end_lsn`."""

    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """What a table is from here on."""

    oid: int
    schema: str
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A row that was inserted (`old` None), updated or deleted (`new` None)."""

    relation: int
    is_insert: bool
    old: Row | None
    """The row as it was; with `is_key_only` only the columns of its key, all others None. None: not told."""
    new: Row | None
    is_key_only: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of these tables were taken away at once."""

    relations: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | Change | Truncate


def parse(data: bytes) -> Message | None:
    """The message; None: one of those that say nothing about rows (types, origins, messages)."""
    match data[:1]:
        case b"I":
            return Change(_INT32.unpack_from(data, 1)[0], True, None, _tuple(data, 6)[0])
        case b"U":
            return _update(data)
        case b"D":
            old, _ = _tuple(data, 6)
            return Change(_INT32.unpack_from(data, 1)[0], False, old, None, data[5:6] == b"K")
        case b"B":
            commit_lsn, at_us, xid = _BEGIN.unpack_from(data, 1)
            return Begin(commit_lsn, at_us // 1000 + EPOCH_MS, xid)
        case b"C":
            return Commit(_COMMIT.unpack_from(data, 1)[2])
        case b"R":
            return _relation(data)
        case b"T":
            (count,) = _INT32.unpack_from(data, 1)
            return Truncate(tuple(_INT32.unpack_from(data, 6 + 4 * n)[0] for n in range(count)))
    return None


def _update(data: bytes) -> Change:
    (relation,) = _INT32.unpack_from(data, 1)
    part, old, place = data[5:6], None, 6
    if part != b"N":
        old, place = _tuple(data, place)
        place += 1
    return Change(relation, False, old, _tuple(data, place)[0], part == b"K")


def _tuple(data: bytes, place: int) -> tuple[list[Value], int]:
    """The values of a row, and the place behind them."""
    (count,) = _INT16.unpack_from(data, place)
    place += 2
    values: list[Value] = []
    for _ in range(count):
        kind = data[place]
        place += 1
        if kind == 0x74:  # t
            (size,) = _INT32.unpack_from(data, place)
            place += 4 + size
            values.append(data[place - size : place])
        else:
            values.append(None if kind == 0x6E else UNCHANGED)  # n, u
    return values, place


def _relation(data: bytes) -> Relation:
    (oid,) = _INT32.unpack_from(data, 1)
    schema, place = _text(data, 5)
    name, place = _text(data, place)
    (count,) = _INT16.unpack_from(data, place + 1)
    place += 3
    columns = []
    for _ in range(count):
        column, place = _text(data, place + 1)
        columns.append(column)
        place += 8
    return Relation(oid, schema or "pg_catalog", name, tuple(columns))


def _text(data: bytes, place: int) -> tuple[str, int]:
    end = data.index(b"\0", place)
    return data[place:end].decode(), end + 1
