"""What a user may change of a savepoint that a job begins with, as it is given and recorded."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from onceflow.runtime.checkpoint.log import JobCreated, decode_entry, encode_entry
from onceflow.runtime.checkpoint.start_changes import StartChanges, start_changes
from onceflow.runtime.errors import OptionError


def given(*pairs: tuple[str, str], has_savepoint: bool = True, **starts: Any) -> StartChanges:
    return start_changes(pairs, starts, has_savepoint)


def test_offsets_are_those_of_splits_however_they_are_written() -> None:
    assert given(src={"events": {"0": 17, "1": 5}}) == given(src={"events-0": 17, "events-1": 5})
    assert given(src=dt.datetime(2026, 1, 31, tzinfo=dt.UTC)).starts == {
        "src": "timestamp:2026-01-31T00:00:00+00:00"
    }


@pytest.mark.parametrize("offset", [-1, "17", 1.5, True, None])
def test_what_is_no_offset_is_refused(offset: Any) -> None:
    with pytest.raises(OptionError, match="is no offset of events-0: write them as"):
        given(src={"events": {"0": offset}})


def test_two_states_do_not_go_to_one_operator_nor_one_to_two() -> None:
    with pytest.raises(OptionError, match="'c' can go on with one state only: leave one out"):
        given(("a", "c"), ("b", "c"))
    with pytest.raises(OptionError, match="'a' is mapped to 'b': leave one out"):
        given(("a", "b"), ("a", "c"))
    assert given(("a", "b"), ("b", "a")).new_uids == {"a": "b", "b": "a"}, "two may change places"


def test_without_a_savepoint_there_is_nothing_to_change() -> None:
    with pytest.raises(
        OptionError, match=r"--map-uid a=b changes what a job begins with.*give it with --from"
    ):
        given(("a", "b"), has_savepoint=False)
    assert not given(has_savepoint=False)


def test_they_are_in_the_first_entry_of_the_log_and_only_where_there_are_any() -> None:
    changes = given(("a", "b"), src={"t-0": 5}, other="latest")
    assert str(changes) == '--map-uid a=b --reset-offsets other=latest --reset-offsets src={"t-0":5}'
    created = JobCreated("job", "lineage", 1, "5f0c", changes)
    assert decode_entry(encode_entry(0, created), 0, "here") == created
    assert b"changes" not in msgspec.json.encode(JobCreated("job", "lineage", 1, "5f0c"))
