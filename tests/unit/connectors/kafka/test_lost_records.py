"""Which records are lost, and how that is said."""

from __future__ import annotations

import pytest

from onceflow.connectors.kafka.lost_records import check_range, cut_log, cut_offset
from onceflow.runtime.errors import DataLossError


def test_an_offset_within_the_log_or_at_its_end_is_there() -> None:
    for offset in (10, 15, 20):
        check_range("t-0", offset, low=10, high=20)


def test_offsets_that_retention_deleted_are_counted() -> None:
    with pytest.raises(DataLossError, match=r"t-0 has to go on at offset 7.*only 10 to 20: 3 offsets"):
        check_range("t-0", 7, low=10, high=20)


def test_a_log_that_is_shorter_than_what_was_read_names_the_first_and_the_last_lost_record() -> None:
    with pytest.raises(DataLossError, match=r"the broker's log ends at 20: the records at offsets 20 to 24"):
        check_range("t-0", 25, low=10, high=20)


def test_a_log_that_was_cut_and_grew_again_is_told_from_one_of_which_that_is_not_known() -> None:
    known = str(cut_log("t-0", 25, cut_at=20))
    assert "was cut at 20: the records at offsets 20 to 24 that were read are gone" in known
    unknown = str(cut_log("t-0", 25, cut_at=None))
    assert "has been cut before it: records that were read are gone" in unknown
    assert "start the job anew" in known
    assert "start the job anew" in unknown


def test_where_it_was_cut_is_read_out_of_librdkafkas_text() -> None:
    said = "Partition log truncation detected at offset 25: broker end offset is 20 (offset leader epoch 1)"
    assert cut_offset(said) == 20
    assert cut_offset("Partition log truncation detected") is None
