"""LogRows: messages of the log as rows of one table, each with what it does. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onceflow.connectors.postgres_cdc.messages import (
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Relation,
    Row,
    Truncate,
    Value,
    parse,
)
from onceflow.connectors.postgres_cdc.position import CdcPosition, Key
from onceflow.connectors.postgres_cdc.settings import CdcSettings, lsn_text
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import RowKind


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row of the table's, and what a transaction does to it."""

    kind: RowKind
    values: Sequence[Value]
    key: Key
    number: int
    """Which row of its transaction it is, from 1; of all, also those that are left out."""
    begin: Begin


@dataclass(frozen=True, slots=True)
class _Places:
    """Where in a row of the log the columns are that are wanted, and those of the key."""

    values: tuple[int, ...]
    key: tuple[int, ...]


class LogRows:
    """Follows the log from a position on. What `feed` gives is taken one by one with `took`, which moves the
    position: between any two a checkpoint may come."""

    def __init__(self, settings: CdcSettings, position: CdcPosition) -> None:
        self._settings = settings
        self._begin: Begin | None = None
        """The transaction whose messages come."""
        self._number = 0
        """How many rows of it have come."""
        self._tables: dict[int, _Places] = {}
        self._lsn, self._commit_lsn, self._taken = position.lsn, position.commit_lsn, position.rows_of_commit
        self._start = position

    def position(self) -> CdcPosition:
        """Where reading goes on: behind what was taken."""
        return dataclasses.replace(
            self._start, lsn=self._lsn, commit_lsn=self._commit_lsn, rows_of_commit=self._taken
        )

    def feed(self, data: bytes | int) -> Sequence[LogRow | int]:
        """What a message brings: rows, or a place in the log before which all has been brought.

        Raises Fatal for what no rows can say."""
        if isinstance(data, int):
            return [] if self._begin is not None else [data]
        message = parse(data)
        match message:
            case Change() if (places := self._tables.get(message.relation)) is not None:
                return list(self._new_rows(message, places))
            case Begin():
                self._begin, self._number = message, 0
                stop = self._start.stop_lsn
                return [stop] if stop is not None and message.commit_lsn >= stop else []
            case Commit():
                self._begin = None
                return [message.end_lsn]
            case Relation():
                self._learn(message)
            case Truncate() if not self._settings.skips_truncates and any(
                oid in self._tables for oid in message.relations
            ):
                raise Fatal(
                    f"{self._settings.where} was truncated: rows that nobody named can't be taken back; say "
                    'truncate="skip" if the rows that came from it may stay, or start with a new checkpoint '
                    "folder"
                )
        return []

    def took(self, what: LogRow | int) -> None:
        """This was taken, and counts from now on."""
        if isinstance(what, int):
            self._start = self.position().at(what)
            moved = self._start
            self._lsn, self._commit_lsn, self._taken = moved.lsn, moved.commit_lsn, moved.rows_of_commit
        else:
            self._commit_lsn, self._taken = what.begin.commit_lsn, what.number

    def _learn(self, relation: Relation) -> None:
        table = self._settings.table
        if (relation.schema, relation.name) != (table.schema, table.name):
            self._tables.pop(relation.oid, None)
            return
        places = {name: place for place, name in enumerate(relation.columns)}
        for name in (*self._settings.schema.names, *self._start.key):
            if name not in places:
                raise Fatal(
                    f"{self._settings.where} has no column {name!r} any more, from {lsn_text(self._lsn)} of "
                    "the log on: leave it out of the rows' type, or start with a new checkpoint folder"
                )
        self._tables[relation.oid] = _Places(
            tuple(places[name] for name in self._settings.schema.names),
            tuple(places[name] for name in self._start.key),
        )

    def _new_rows(self, change: Change, places: _Places) -> Iterator[LogRow]:
        """The rows of a change that were neither taken before a restart nor read with the table."""
        begin = self._begin
        assert begin is not None, "changes come in transactions"
        for kind, row in _rows(change, places):
            self._number += 1
            if begin.commit_lsn == self._commit_lsn and self._number <= self._taken:
                continue
            key = tuple(_text(row[place]) for place in places.key)
            if self._start.ranges and self._start.is_read(key, begin.xid, begin.commit_lsn):
                continue
            yield LogRow(kind, [row[place] for place in places.values], key, self._number, begin)


def _rows(change: Change, places: _Places) -> Sequence[tuple[RowKind, Row]]:
    """What a change does, row by row. A row that moves to another key is deleted there and inserted here."""
    old, new = change.old, change.new
    if new is None:
        return [] if old is None else [(RowKind.DELETE, old)]
    if change.is_insert:
        return [(RowKind.INSERT, new)]
    if old is None:
        return [(RowKind.UPDATE_AFTER, new)]
    if not change.is_key_only:
        new = [before if now is UNCHANGED else now for before, now in zip(old, new, strict=True)]
    if any(old[place] != new[place] for place in places.key):
        return [(RowKind.DELETE, old), (RowKind.INSERT, new)]
    if change.is_key_only:
        return [(RowKind.UPDATE_AFTER, new)]
    return [(RowKind.UPDATE_BEFORE, old), (RowKind.UPDATE_AFTER, new)]


def _text(value: Value) -> str:
    return value.decode() if isinstance(value, bytes) else ""
