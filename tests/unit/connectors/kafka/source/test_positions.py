"""How far splits have been read, and what proves it."""

from __future__ import annotations

import numpy as np
import pytest

from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.source.positions import ReaderPositions
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError


def positions_of(*splits: KafkaSplit) -> ReaderPositions:
    table = SplitTable()
    table.add(list(splits))
    positions = ReaderPositions(table)
    positions.add(splits)
    return positions


def start(positions: ReaderPositions, index: int = 0) -> tuple[int, int | None]:
    found = positions.start(index)
    return found.offset, found.leader_epoch


def test_reading_begins_behind_the_last_record_and_its_epoch() -> None:
    positions = positions_of(KafkaSplit("t", "id", 0, 5))
    assert start(positions) == (5, None)
    positions.go_on({0: 9}, {0: 3})
    assert start(positions) == (10, 3)
    positions.reach(0, 12)  # a marker, of whatever epoch
    assert start(positions) == (10, 3)
    split = positions.split(0)
    assert (split.next_offset, split.leader_epoch, split.epoch_offset) == (12, 3, 10)
    assert KafkaSplit.from_state(split.state()) == split
    assert start(positions_of(split)) == (10, 3)


def test_the_end_of_a_partition_behind_the_stop_was_not_read() -> None:
    """Who goes on from there has yet to read what lies between."""
    positions = positions_of(KafkaSplit("t", "id", 0, 5, 8), KafkaSplit("t", "id", 1, 9, 8))
    positions.reach(0, 12)
    positions.reach(1, 12)
    assert [positions.split(n).next_offset for n in range(2)] == [8, 9]
    assert positions.split(0).is_finished


def test_what_was_handed_on_before_changes_nothing() -> None:
    positions = positions_of(KafkaSplit("t", "id", 0, 12, None, 3, 10))
    positions.go_on({0: 9}, {0: 2})
    assert start(positions) == (10, 3)


def test_a_state_from_before_epochs_were_kept_is_read() -> None:
    old = {"topic": "t", "topic_id": "id", "partition": 0, "next_offset": 7, "stop_offset": None}
    assert start(positions_of(KafkaSplit.from_state(SplitState("t-0", old)))) == (7, None)


def test_a_split_that_skips_to_the_end_has_read_nothing_there() -> None:
    split = KafkaSplit("t", "id", 0, 12, None, 3, 10)
    assert start(positions_of(split.skipped(90))) == (90, None)
    assert split.skipped(12) == split


def test_a_last_record_that_retention_deleted_proves_nothing() -> None:
    positions = positions_of(KafkaSplit("t", "id", 0, 12, None, 3, 10))
    positions.forget_epoch_before(0, 10)
    assert start(positions) == (10, 3)
    positions.forget_epoch_before(0, 11)
    assert start(positions) == (12, None)
    assert positions.split(0).leader_epoch is None


@pytest.mark.parametrize(
    ("offset", "epoch", "is_lost"),
    [(10, 4, True), (11, 4, True), (11, 3, False), (9, 4, False), (12, 4, False)],
)
def test_records_where_there_were_none_are_lost_records(offset: int, epoch: int, is_lost: bool) -> None:
    """They are a newer leader's, between the last record that was read and the next offset."""
    positions = positions_of(KafkaSplit("t", "id", 0, 12, None, 3, 10))
    found = np.zeros(1, np.uint16), np.array([offset], np.int64), {0: epoch}
    if not is_lost:
        positions.refuse_filled(*found)
        return
    with pytest.raises(DataLossError, match=rf"t-0 has to go on at offset 12, .* was cut at {offset}:"):
        positions.refuse_filled(*found)
