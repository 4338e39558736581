"""Where a reader of a table's changes is: which changes the table had already when it was read."""

from __future__ import annotations

import json

import pytest

from onceflow.connectors.postgres_cdc.position import CdcPosition, ReadRange

START = CdcPosition("7", ("id",), (True,), True, 100)


@pytest.mark.parametrize(
    ("xid", "commit_lsn", "is_seen"),
    [
        (9, 50, True),  # before all that ran
        (10, 50, False),  # it ran
        (11, 50, True),
        (12, 50, False),
        (13, 50, False),  # it came later
        (11, 200, False),  # committed behind the place at which the snapshot was there
    ],
)
def test_a_snapshot_sees_what_had_ended_when_it_was_there(xid: int, commit_lsn: int, is_seen: bool) -> None:
    assert ReadRange(None, "10:13:10,12", 200).sees(xid, commit_lsn) is is_seen


def test_numbers_of_transactions_begin_anew_after_four_thousand_millions() -> None:
    turn = 1 << 32
    seen = ReadRange(None, f"{turn - 2}:{turn + 3}:{turn - 2},{turn + 1}", 200)
    assert not seen.sees((turn - 2) & (turn - 1), 50)
    assert seen.sees((turn - 1) & (turn - 1), 50)
    assert not seen.sees(1, 50)
    assert seen.sees(2, 50)
    assert not seen.sees(3, 50)
    assert seen.sees((turn - 100) & (turn - 1), 50), "long ago"


def test_each_part_of_the_table_has_the_snapshot_that_it_was_read_in() -> None:
    first = START.begin_range("10:10:", 200).after_rows(("9",), 3)
    assert (first.read_up_to, first.rows) == (("9",), 3)
    both = first.begin_range("20:20:", 300).after_rows(("11",), 1).after_table()
    assert [each.to for each in both.ranges] == [("9",), None]
    assert not both.is_read(("9",), 15, 150), "9 is below 11, as a number"
    assert both.is_read(("10",), 15, 150)
    assert both.is_read(("1000",), 15, 150)
    assert not both.is_read(("10",), 25, 150)
    assert not both.at(299).is_read(("10",), 25, 299)
    assert both.at(299).ranges
    assert both.at(300).ranges == ()


def test_a_part_of_which_nothing_was_read_leaves_nothing_behind() -> None:
    twice = START.begin_range("10:10:", 200).begin_range("20:20:", 300)
    assert twice.ranges == (ReadRange(None, "20:20:", 300),)


def test_text_is_ordered_by_its_code_points() -> None:
    by_text = CdcPosition("7", ("id", "of"), (False, True), True, 1)
    part = by_text.begin_range("10:10:", 200).after_rows(("a", "10"), 1).begin_range("20:20:", 200)
    assert not part.is_read(("B", "99"), 15, 150)
    assert not part.is_read(("a", "9"), 15, 150)
    assert part.is_read(("a", "11"), 15, 150)
    assert part.is_read(("ä", "1"), 15, 150)


def test_a_place_before_the_transaction_that_is_read_leaves_it_be() -> None:
    inside = CdcPosition("7", ("id",), (True,), False, 100, commit_lsn=150, rows_of_commit=3)
    assert (inside.at(120).commit_lsn, inside.at(120).rows_of_commit) == (150, 3)
    assert inside.at(90).lsn == 100
    assert (inside.at(160).commit_lsn, inside.at(160).rows_of_commit) == (0, 0)


def test_a_bounded_source_stops_when_all_parts_of_the_table_are_of_one_moment() -> None:
    bounded = CdcPosition("7", ("id",), (True,), True, 100, stop_lsn=100)
    assert not bounded.is_at_stop
    read = bounded.begin_range("10:10:", 200).after_rows(("9",), 1).after_table()
    assert read.stop_lsn == 200
    assert not read.at(199).is_at_stop
    assert read.at(200).is_at_stop


def test_it_is_the_same_after_json() -> None:
    whole = START.begin_range("10:13:10,12", 200).after_rows(("1",), 3).begin_range("20:20:", 300)
    assert CdcPosition.of(json.loads(json.dumps(whole.to_json()))) == whole
