"""Meetings: what a regular join keeps of both sides, and what it sends for rows that come and rows that go.

Rows of one side come many at a time, of which no two add and take back rows of the same key; so what each of
them finds on the other side is what it would find if they came one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.joins.asked import Asked
from onceflow.runtime.operators.joins.equal_rows import equal_rows
from onceflow.runtime.operators.joins.joined_columns import LEFT, Gatherer
from onceflow.runtime.operators.joins.ordered_changes import OrderedChanges
from onceflow.runtime.operators.joins.runs import EVER_MS, FrozenRun, Run, SideRows, pairs
from onceflow.runtime.records import Indices, Int64s, Mask, RowKind
from onceflow.runtime.state.rows import take_rows

PARTNERS = "partners"
"""How many pairs with a row of a padded side are in the result: what was sent and not taken back."""
SINCE = "since"
"""When a row came, where rows expire: in the time that they expire by."""
_EVENT_TIME = "event_time"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows of one side. `since`: when each comes, in the time that rows expire by; `event_time`: None if the
    stream has none; `row`: the number of its key; `has_key`: whether the key is without null (None: all)."""

    side: int
    batch: pa.RecordBatch
    event_time: Int64s | None
    since: Int64s
    row: Int64s
    has_key: Mask | None

    def __len__(self) -> int:
        return len(self.row)

    def slice(self, first: int, end: int) -> Arrivals:
        return Arrivals(
            self.side,
            self.batch.slice(first, end - first),
            None if self.event_time is None else self.event_time[first:end],
            self.since[first:end],
            self.row[first:end],
            None if self.has_key is None else self.has_key[first:end],
        )


class Meetings:
    """The rows of both sides, and how many partners those have that come alone too."""

    def __init__(
        self, schemas: Sequence[pa.Schema], gatherer: Gatherer, padded: Sequence[int], ttl_ms: int | None
    ) -> None:
        self.sides = [SideRows(schema, is_padded=False) for schema in schemas]
        self._gatherer = gatherer
        self._padded = padded
        self._ttl_ms = ttl_ms

    def load(self, rows: Arrivals, partners: Int64s) -> None:
        """Rows of a snapshot."""
        self._keep(rows, np.arange(len(rows)), partners)

    def partners_within(self, rows: Arrivals) -> Int64s:
        """How many pairs each of these would have at most."""
        found = np.zeros(len(rows), np.int64)
        for run in self.sides[1 - rows.side].runs:
            found += run.find(rows.row, *self._met_by(rows.since, rows.since))[1]
        return found

    def add(self, rows: Arrivals, mine: Indices, out: OrderedChanges) -> None:
        """The rows with these numbers come."""
        side, other = rows.side, 1 - rows.side
        met = np.zeros(len(rows), np.int64)
        earliest, latest = self._met_by(rows.since[mine], rows.since[mine])
        for run, asks, theirs in self._pairs(rows, mine, earliest, latest):
            if other in self._padded:
                partners = run.beside[PARTNERS]
                their, first, counts = np.unique(theirs, return_index=True, return_counts=True)
                lone = partners[their] == 0
                self._send_alone(out, RowKind.DELETE, run, their[lone], rows, asks[first[lone]])
                partners[their] += counts
            met += np.bincount(asks, minlength=len(rows))
            self._send_pairs(out, RowKind.INSERT, rows, asks, run, theirs)
        if side in self._padded:
            self._send_own(out, RowKind.INSERT, rows, mine[met[mine] == 0])
        kept = mine if rows.has_key is None else mine[rows.has_key[mine]]
        self._keep(rows, kept, met[kept])

    def take_back(self, rows: Arrivals, mine: Indices, out: OrderedChanges) -> None:
        """For each of the rows with these numbers one goes that is equal to it; where there is none, nothing
        happens. A row that has expired is not there."""
        side, other, runs = rows.side, 1 - rows.side, self.sides[rows.side].runs
        if rows.has_key is not None:  # nothing was kept of a key that equals none
            if side in self._padded:
                self._send_own(out, RowKind.DELETE, rows, mine[~rows.has_key[mine]])
            mine = mine[rows.has_key[mine]]
        earliest, _ = self._met_by(rows.since[mine], rows.since[mine])
        found = equal_rows(runs, take_rows(rows.batch, mine), rows.row[mine], earliest)
        mine, number, place = (values[found.run >= 0] for values in (mine, found.run, found.place))
        since = np.empty(len(mine), np.int64)
        for n, run in enumerate(runs):
            its, places = mine[number == n], place[number == n]
            since[number == n] = run.time[places]
            if side in self._padded:
                self._send_own(out, RowKind.DELETE, rows, its[run.beside[PARTNERS][places] == 0])
            if len(places):
                run.take_away(places)
        earliest, latest = self._met_by(np.maximum(since, rows.since[mine]), since)
        for run, asks, theirs in self._pairs(rows, mine, earliest, latest):
            self._send_pairs(out, RowKind.DELETE, rows, asks, run, theirs)
            if other in self._padded:
                partners = run.beside[PARTNERS]
                their, first, counts = np.unique(theirs[::-1], return_index=True, return_counts=True)
                partners[their] -= counts
                assert int(partners[their].min()) >= 0, "more pairs are taken back than were sent"
                lone = partners[their] == 0
                self._send_alone(out, RowKind.INSERT, run, their[lone], rows, asks[::-1][first[lone]])
        self.sides[side].let_go_of_what_is_gone()

    # --- Who meets whom ---

    def _met_by(self, latest_of: Int64s, earliest_of: Int64s) -> tuple[Int64s, Int64s]:
        """From when on, and until when, those came that meet a row: neither of the two has expired when the
        other one comes."""
        if self._ttl_ms is None:
            return np.full(len(latest_of), -EVER_MS), np.full(len(latest_of), EVER_MS)
        return latest_of - (self._ttl_ms - 1), earliest_of + (self._ttl_ms - 1)

    def _pairs(
        self, rows: Arrivals, mine: Indices, earliest: Int64s, latest: Int64s
    ) -> Iterator[tuple[Run, Indices, Indices]]:
        """(run of the other side, numbers of rows, places in the run) of all that meet, in pieces; within a
        run in the order of the rows."""
        asked = Asked(rows.row[mine], earliest, latest)
        for run, begin, counts in asked.find(self.sides[1 - rows.side].runs):
            if rows.has_key is not None:
                counts[~rows.has_key[mine]] = 0
            for places, theirs in pairs(begin, counts):
                asks = mine[places]
                if run.is_gone is not None:
                    is_there = ~run.is_gone[theirs]
                    asks, theirs = asks[is_there], theirs[is_there]
                holds = self._gatherer.holds(*_by_side(rows, asks, run, theirs))
                if holds is not None:
                    asks, theirs = asks[holds], theirs[holds]
                if len(asks):
                    yield run, asks, theirs

    def _keep(self, rows: Arrivals, kept: Indices, partners: Int64s) -> None:
        beside = {}
        if rows.event_time is not None and self._ttl_ms is not None:
            beside[_EVENT_TIME] = rows.event_time[kept]
        if rows.side in self._padded:
            beside[PARTNERS] = partners
        batch = rows.batch if len(kept) == len(rows) else take_rows(rows.batch, kept)
        self.sides[rows.side].add(batch, rows.row[kept], rows.since[kept], beside=beside)

    # --- What is sent ---

    def _send_pairs(
        self, out: OrderedChanges, kind: RowKind, rows: Arrivals, asks: Indices, run: Run, theirs: Indices
    ) -> None:
        batch = self._gatherer.pairs(*_by_side(rows, asks, run, theirs))
        out.add(asks, batch, kind, _later_time(rows, asks, run, theirs))

    def _send_alone(
        self, out: OrderedChanges, kind: RowKind, run: Run, places: Indices, rows: Arrivals, asks: Indices
    ) -> None:
        """Rows of the other side, because of rows before which they had no partner, or behind which."""
        if len(places):
            batch = self._gatherer.alone(1 - rows.side, take_rows(run.batch, places))
            out.add(asks, batch, kind, _later_time(rows, asks, run, places))

    def _send_own(self, out: OrderedChanges, kind: RowKind, rows: Arrivals, asks: Indices) -> None:
        if len(asks):
            batch = self._gatherer.alone(rows.side, take_rows(rows.batch, asks))
            out.add(asks, batch, kind, None if rows.event_time is None else rows.event_time[asks])


@dataclass(frozen=True, slots=True)
class FrozenKept:
    """FrozenPart: the rows of a run, with their event times apart from when they came."""

    run: FrozenRun

    @property
    def batch(self) -> pa.RecordBatch:
        return self.run.batch

    @property
    def time(self) -> Int64s:
        return self.run.beside.get(_EVENT_TIME, self.run.time)

    @property
    def is_matched(self) -> Mask | None:
        partners = self.run.beside.get(PARTNERS)
        return None if partners is None else partners > 0

    @property
    def beside(self) -> dict[str, Int64s]:
        return {**self.run.beside, SINCE: self.run.time}

    def live(self) -> Indices:
        return self.run.live()


def _by_side(
    rows: Arrivals, asks: Indices, run: Run, theirs: Indices
) -> tuple[tuple[pa.RecordBatch, pa.RecordBatch], tuple[Indices, Indices]]:
    """(batches, rows) of pairs, the left ones first."""
    if rows.side == LEFT:
        return (rows.batch, run.batch), (asks, theirs)
    return (run.batch, rows.batch), (theirs, asks)


def _later_time(rows: Arrivals, asks: Indices, run: Run, theirs: Indices) -> Int64s | None:
    """The later of the event times of two rows: no output is earlier than the row that causes it."""
    if rows.event_time is None:
        return None
    return np.maximum(rows.event_time[asks], run.beside.get(_EVENT_TIME, run.time)[theirs])
