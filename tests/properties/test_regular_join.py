"""Regular joins against nested loops that take rows one by one: updates and deletes, times to live, disorder,
any batches, watermarks, and restores at another parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Retryable
from onceflow.runtime.operators.joins import equal_rows, regular_join
from onceflow.runtime.operators.joins.joined_rows import JoinedRows
from onceflow.runtime.operators.joins.meetings import Meetings
from onceflow.runtime.operators.joins.ordered_changes import OrderedChanges
from onceflow.runtime.operators.joins.regular_join import RegularJoinOperator
from onceflow.runtime.operators.joins.runs import EVER_MS, PAIRS_MAX, Run
from onceflow.runtime.records import RowKind
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from tests.regular_join_model import LEFT, RIGHT, Case, Play, Row, play

KIND = st.sampled_from([RowKind.INSERT, RowKind.INSERT, *RowKind])
ROW = st.builds(
    Row, st.sampled_from(["a", "a", "b", "", None]), st.none() | st.integers(0, 2), st.integers(-30, 60), KIND
)
ROWS = st.lists(ROW, min_size=1, max_size=12)
MOVE = st.one_of(
    st.tuples(st.sampled_from(["left", "right"]), ROWS),
    st.tuples(st.sampled_from(["left", "right"]), ROWS),
    st.tuples(st.just("watermark"), st.integers(-40, 70)),
    st.tuples(st.just("clock"), st.integers(0, 15)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)
CASE = st.builds(
    Case,
    st.sampled_from(["inner", "left", "right", "full"]),
    st.sampled_from([None, "event", "processing"]),
    st.booleans(),
    st.booleans(),
)
GONE = [Row("a", 1, 0, RowKind.DELETE)]
TWICE = [Row("a", 1, 0), Row("a", 1, 30)]
TO_AND_FRO: list[tuple[str, Any]] = [
    ("left", [Row("a", 1, 3), Row("b", 0, 1), Row("a", None, 1)]),
    ("right", [Row("a", 0, 5), *GONE, Row("a", 1, 5), Row("b", 1, 9)]),
    *(("right", [Row("a", 2, n)]) for n in range(9)),
    ("left", [*GONE, Row("a", 1, 4, RowKind.UPDATE_AFTER), *GONE, Row("c", 1, 4), Row("c", 1, 4)]),
    ("restore", 3),
    ("right", [Row("a", n % 3, 9, RowKind.DELETE) for n in range(12)]),
    ("watermark", 8),
    ("right", [Row("c", 1, 4, RowKind.UPDATE_BEFORE), Row("c", 2, 4)]),
    ("left", [Row("c", 1, 24, RowKind.UPDATE_BEFORE), Row("c", 1, 27, RowKind.UPDATE_BEFORE)]),
    ("clock", 30),
    ("left", [Row("a", 2, 5), Row("a", 2, 29), Row("b", 1, 29)]),
]
APART: list[tuple[str, Any]] = [
    ("left", [Row("a", 1, 0), Row("b", 1, 20), Row("c", 1, 10)]),
    ("right", [Row("b", 2, 0), Row("b", 2, 1)]),
    ("watermark", 12),
    ("right", [Row("a", 1, 20), Row("b", 1, 0), Row("c", 1, 12)]),
]
"""Rows that are to meet, just not, and late."""
ONE_OF_MANY = [
    ("left", [Row("a", n, 0) for n in range(9)]),
    ("left", GONE),
    ("restore", 1),
    ("right", [Row("a", 0, 1), Row("a", 3, 1)]),
]
"""One row goes of a run that stays, and then rows come of which the first has other partners."""
OTHERS = ("left", [Row(key, 1, 0) for key in "bcdefghijk"])
TAKEN_BACK_FROM_DISK: list[tuple[str, Any]] = [
    ("left", [Row("a", 1, 0)]),
    OTHERS,
    OTHERS,
    ("left", GONE),
    OTHERS,
    ("right", [Row("a", 1, 1)]),
]
MANY = ("left", [Row(f"k{n}", 1, 0) for n in range(100)])
TAKEN_BACK_AND_FORGOTTEN: list[tuple[str, Any]] = [
    ("left", [Row("a", 1, 0)]),
    MANY,
    ("left", GONE),
    ("restore", 1),
    ("right", [Row("a", 1, 1)]),
]
"""There are so many keys that the one which has changed is written without the others."""
PLAYS = [
    (Case("inner", None), TAKEN_BACK_FROM_DISK),
    (Case("inner", None), TAKEN_BACK_AND_FORGOTTEN),
    (Case("full", None), TO_AND_FRO),
    (Case("full", "event"), TO_AND_FRO),
    (Case("left", "event"), [("left", TWICE), ("watermark", 25), ("left", [*GONE, *GONE])]),
    (Case("full", "event"), APART),
    (Case("full", None, has_condition=True), [*ONE_OF_MANY, ("right", [Row("a", None, 2), Row("a", 2, 2)])]),
]


@settings(max_examples=50, deadline=None)
@given(CASE, st.lists(MOVE, max_size=14))
@example(*PLAYS[2])
@example(*PLAYS[3])
@example(*PLAYS[4])
def test_a_join_agrees_with_nested_loops(case: Case, moves: list[tuple[str, Any]]) -> None:
    play(case, moves)


@settings(max_examples=40, deadline=None)
@given(CASE, st.lists(MOVE, max_size=14))
@example(*PLAYS[2])
@example(*PLAYS[3])
@example(*PLAYS[4])
def test_so_does_one_whose_snapshots_build_on_each_other(case: Case, moves: list[tuple[str, Any]]) -> None:
    play(case, moves, INCREMENTAL)


@settings(max_examples=40, deadline=None)
@given(CASE, st.lists(MOVE, max_size=14))
@example(*PLAYS[0])
@example(*PLAYS[1])
@example(*PLAYS[2])
@example(*PLAYS[3])
@example(*PLAYS[4])
@example(*PLAYS[5])
def test_so_does_one_in_rocksdb(case: Case, moves: list[tuple[str, Any]]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        play(case, moves, state)


@settings(max_examples=30, deadline=None)
@given(CASE, ROWS, ROWS, st.lists(st.integers(1, 4), min_size=24))
def test_what_comes_out_does_not_hang_on_how_batches_were_cut(
    case: Case, left: list[Row], right: list[Row], cuts: list[int]
) -> None:
    whole, cut = Play(case), Play(case)
    for side, rows in ((0, left), (1, right), (0, right)):
        whole.push(side, rows)
        rest, sizes = rows, iter(cuts)
        while rest:
            size = next(sizes)
            cut.push(side, rest[:size])
            rest = rest[size:]
    assert whole.result == cut.result


def kept_rows(run: Play) -> int:
    operators = [op for op in run.harness.subtasks if isinstance(op, RegularJoinOperator)]
    return sum(len(side) for op in operators for side in op._meetings.sides)


def keys_of(run: Play) -> int:
    return sum(op._rows.key_count for op in run.harness.subtasks if isinstance(op, RegularJoinOperator))


def test_rows_that_expired_or_were_taken_back_are_let_go_of_and_so_are_their_keys() -> None:
    for ttl, last in (("event", RowKind.INSERT), (None, RowKind.DELETE)):
        run = Play(Case("full", ttl))
        for first in range(0, 6_000, 300):
            rows = [Row(f"k{n}", n % 3, n) for n in range(first, first + 300)]
            run.push(0, rows)
            run.push(0, [row._replace(kind=last) for row in rows])
            run.watermark = first
            run.harness.advance(first)
        assert kept_rows(run) < 2_000
        assert keys_of(run) < 3_000


def test_what_expires_on_disk_is_let_go_of_there() -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        run = Play(Case("full", "event"), state)
        run.push(0, [Row(f"k{n}", 1, n) for n in range(40)])
        assert kept_rows(run) < 40
        for watermark in (30, 90):
            run.harness.advance(watermark)
        assert not [rows for state in run.harness.snapshot() for rows in state.batches("rows")]


def test_one_row_that_meets_very_many_sends_them_in_pieces_and_many_rows_are_taken_some_at_a_time() -> None:
    run = Play(Case("full", None))
    many = [{"id": "a", "n": n % 4, "of": None} for n in range(3 * PAIRS_MAX // 2)]
    run.harness.push(pa.RecordBatch.from_pylist(many, LEFT), [5] * len(many))
    run.harness.out.emitted.clear()
    some = [{"n": 1, "ref": "a", "mark": 7}] * 2
    for kind in (RowKind.INSERT, RowKind.DELETE):
        run.harness.push_right(pa.RecordBatch.from_pylist(some, RIGHT), [6, 6], [kind] * 2)
        sizes = [len(records) for _, records in run.harness.out.emitted]
        assert sum(sizes) == 3 * len(many), "two pairs for each, and the row alone"
        assert max(sizes) <= PAIRS_MAX
        run.harness.out.emitted.clear()


# --- What a wrong join would do ---

_keep, _met_by = Meetings._keep, Meetings._met_by
_add, _ranks = OrderedChanges.add, equal_rows._ranks
_split, _load = RocksGroups.split, JoinedRows.load_keys


def _keeps_no_partners(self: Meetings, rows: Any, kept: Any, partners: Any) -> None:
    _keep(self, rows, kept, np.zeros_like(partners))


def _meets_who_comes_later(self: Meetings, latest_of: Any, earliest_of: Any) -> Any:
    earliest, latest = _met_by(self, latest_of, earliest_of)
    return earliest, np.full(len(latest), EVER_MS)


def _meets_a_row_of_the_last_ms(self: Meetings, latest_of: Any, earliest_of: Any) -> Any:
    earliest, latest = _met_by(self, latest_of, earliest_of)
    return earliest - 1, latest


def _expires_early(watermark_ms: int, keep_ms: int) -> int:
    return max(-EVER_MS, watermark_ms - keep_ms // 4)


def _unordered(self: OrderedChanges, cause: Any, batch: Any, kind: RowKind, time: Any) -> None:
    _add(self, np.zeros_like(cause), batch, kind, time)


def _all_at_once(row: Any, adds: Any) -> Any:
    return np.zeros(len(row), np.int64)


def _with_what_is_gone(self: Run, limit: int) -> Any:
    return np.flatnonzero(self.time > limit)


def _the_first_of_equals(*arguments: Any) -> list[int]:
    return [-rank for rank in _ranks(*arguments)]


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("a row does not know of its first partners", [(Meetings, "_keep", _keeps_no_partners)]),
        Mutant("a row meets those that come after it", [(Meetings, "_met_by", _meets_who_comes_later)]),
        Mutant("a row is there when it expires", [(Meetings, "_met_by", _meets_a_row_of_the_last_ms)]),
        Mutant("rows expire too early", [(regular_join, "limit_of", _expires_early)]),
        Mutant("changes come in any order", [(OrderedChanges, "add", _unordered)]),
        Mutant("a batch is taken in one turn", [(regular_join, "_turns", _all_at_once)]),
        Mutant("what is gone is in the snapshot", [(Run, "live", _with_what_is_gone)]),
        Mutant("of equal rows the first goes", [(equal_rows, "_ranks", _the_first_of_equals)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_join_is_found(mutant: Mutant) -> None:
    def is_right() -> bool:
        try:
            for case, moves in PLAYS:
                play(case, moves)
        except AssertionError:
            return False
        return True

    assert is_right()
    with mutated(mutant):
        assert not is_right()


def _one_row_of_a_key(content: bytes) -> Any:
    return _split(content)[:1]


def _never_deleted(self: RocksGroups, identities: Any) -> None:
    if (kept := self._table.kept_keys) is not None:
        self._keep(kept)


def _told_to_nobody(self: JoinedRows, keys: Any, identities: Any) -> None:
    pass


def _rows_without_partners(self: JoinedRows, batch: pa.RecordBatch) -> Any:
    place = batch.schema.get_field_index("partners")
    none = pa.nulls(batch.num_rows, pa.int64())
    return _load(self, batch.set_column(place, "partners", none))


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("of a key one row comes back", [(RocksGroups, "split", staticmethod(_one_row_of_a_key))]),
        Mutant("what was taken back is there again", [(RocksGroups, "_renumbered", _never_deleted)]),
        Mutant("who is forgotten is not told of", [(JoinedRows, "_note_gone", _told_to_nobody)]),
        Mutant("who comes back has no partners", [(JoinedRows, "load_keys", _rows_without_partners)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_join_in_rocksdb_is_found(mutant: Mutant) -> None:
    def is_right() -> bool:
        try:
            with tight_rocksdb(rows_in_memory=1) as state:
                for case, moves in PLAYS:
                    play(case, moves, state)
        except (AssertionError, Retryable):
            return False
        return True

    assert is_right()
    with mutated(mutant):
        assert not is_right()
