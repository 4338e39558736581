"""Where a reader of a table's changes is: how far into the table, and behind that how far into the log. Pure.

The table is read in the order of its key, in one transaction as long as nobody dies; what follows after a
restart sees a later state. So each part that was read (ReadRange) keeps the snapshot that it was read in, and
a change from the log counts exactly if the part that its key is in does not have it yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from onceflow.runtime.contracts import Json

Key = tuple[str, ...]
"""The values of a row's key as PostgreSQL writes them."""


@dataclass(frozen=True)
class ReadRange:
    """A part of the table that was read in one transaction: the keys up to `to`, behind the part before."""

    to: Key | None
    """The last key of it; None: it goes to the end of the table, or nothing of it was read yet."""
    snapshot: str
    """What pg_current_snapshot() said in that transaction: xmin:xmax:xip,xip."""
    high_lsn: int
    """Where the log ended when the snapshot was there: what is committed at it or behind it is not seen."""

    @cached_property
    def _parts(self) -> tuple[int, int, frozenset[int]]:
        low, high, running = self.snapshot.split(":")
        return int(low), int(high), frozenset(map(int, filter(None, running.split(","))))

    def sees(self, xid: int, commit_lsn: int) -> bool:
        """Whether the transaction `xid` (32 bits, as the log has it), committed at `commit_lsn`, was seen."""
        if commit_lsn >= self.high_lsn:
            return False
        low, high, running = self._parts
        whole = (high >> 32 << 32) | xid
        if whole - high > 1 << 31:
            whole -= 1 << 32
        return whole < low or (whole < high and whole not in running)


@dataclass(frozen=True)
class CdcPosition:
    """The position of the one split, and its whole state."""

    system: str
    """The identifier of the database cluster: positions of another one mean nothing here."""
    key: tuple[str, ...]
    """The columns of the primary key; () if there is none, and the table is not read."""
    is_number: tuple[bool, ...]
    """Whether the column of the key is ordered as a number, and not as text."""
    is_reading_table: bool
    lsn: int
    """All transactions committed before it have been read."""
    commit_lsn: int = 0
    """The transaction behind it that is being read; 0: none."""
    rows_of_commit: int = 0
    """How many rows of that one have been read."""
    rows: int = 0
    """How many rows were read in all."""
    ranges: tuple[ReadRange, ...] = ()
    """The parts of the table, in the order of its key, until the log is behind all of them."""
    stop_lsn: int | None = None
    """What is committed at it or behind it is not read by a bounded source; None: it has no end."""

    def to_json(self) -> Mapping[str, Json]:
        made: dict[str, Any] = dataclasses.asdict(self)
        made["key"], made["is_number"] = list(self.key), list(self.is_number)
        made["ranges"] = [
            {
                "to": None if each.to is None else list(each.to),
                "snapshot": each.snapshot,
                "high_lsn": each.high_lsn,
            }
            for each in self.ranges
        ]
        return made

    @staticmethod
    def of(position: Mapping[str, Any]) -> CdcPosition:
        ranges = [
            ReadRange(None if each["to"] is None else tuple(each["to"]), each["snapshot"], each["high_lsn"])
            for each in position["ranges"]
        ]
        given = {**position, "ranges": tuple(ranges)}
        return CdcPosition(**{**given, "key": tuple(given["key"]), "is_number": tuple(given["is_number"])})

    def is_read(self, key: Key, xid: int, commit_lsn: int) -> bool:
        """Whether what this transaction did to the row of this key was in the table as it was read."""
        if not self.ranges:
            return False
        place = self._order(key)
        for each in self.ranges:
            if each.to is None or place <= self._order(each.to):
                return each.sees(xid, commit_lsn)
        return False

    def _order(self, key: Sequence[str]) -> tuple[int | str, ...]:
        return tuple(
            int(value) if number else value for value, number in zip(key, self.is_number, strict=True)
        )

    # --- Moves ---

    def begin_range(self, snapshot: str, high_lsn: int) -> CdcPosition:
        """Behind what was read of the table so far a new transaction begins."""
        kept = tuple(each for each in self.ranges if each.to is not None)
        return dataclasses.replace(self, ranges=(*kept, ReadRange(None, snapshot, high_lsn)))

    @property
    def read_up_to(self) -> Key | None:
        """The last key that was read of the table; None: none was."""
        return next((each.to for each in reversed(self.ranges) if each.to is not None), None)

    def after_rows(self, last: Key, count: int) -> CdcPosition:
        """Rows of the table were read in the last range, up to this key."""
        *before, now = self.ranges
        now = ReadRange(last, now.snapshot, now.high_lsn)
        return dataclasses.replace(self, rows=self.rows + count, ranges=(*before, now))

    def after_table(self) -> CdcPosition:
        """The table was read to its end: the last range has all keys behind, and the log is next."""
        *before, now = self.ranges
        ranges = (*before, ReadRange(None, now.snapshot, now.high_lsn))
        stop = self.stop_lsn
        if stop is not None:  # the parts are of one moment only when the log is behind all of them
            stop = max(stop, *(each.high_lsn for each in ranges))
        return dataclasses.replace(self, is_reading_table=False, ranges=ranges, stop_lsn=stop)

    def at(self, lsn: int) -> CdcPosition:
        """All that was committed before `lsn` was read; never back. The transaction that is being read stays
        it until `lsn` is behind it: a server that is asked again names places before it first."""
        lsn = max(lsn, self.lsn)
        is_behind = lsn > self.commit_lsn
        return dataclasses.replace(
            self,
            lsn=lsn,
            commit_lsn=0 if is_behind else self.commit_lsn,
            rows_of_commit=0 if is_behind else self.rows_of_commit,
            ranges=() if all(each.high_lsn <= lsn for each in self.ranges) else self.ranges,
        )

    @property
    def is_at_stop(self) -> bool:
        """Whether a bounded source has read all that it is to read."""
        return self.stop_lsn is not None and not self.is_reading_table and self.lsn >= self.stop_lsn
