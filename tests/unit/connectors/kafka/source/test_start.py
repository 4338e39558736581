"""What a user gives as `start=` and `until=`."""

from __future__ import annotations

import datetime as dt

import pytest

from onceflow.connectors.kafka.source.start import parse_start, parse_until
from onceflow.connectors.kafka.starts import AtOffsets, AtTime, Earliest, FromGroup, Latest
from onceflow.runtime.errors import OptionError


def test_starts() -> None:
    assert parse_start("earliest", None) == Earliest()
    assert parse_start("latest", None) == Latest()
    assert parse_start("group", "g") == FromGroup("g")
    assert parse_start("timestamp:1700000000123", None) == AtTime(1_700_000_000_123)
    assert parse_start("timestamp:2023-11-14T22:13:20Z", None) == AtTime(1_700_000_000_000)
    assert parse_start(dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC), None) == AtTime(
        1_700_000_000_000
    )
    assert parse_start({"a-b-0": 3}, None) == AtOffsets({"a-b-0": 3})


@pytest.mark.parametrize("start", ["newest", {"events-0": -1}, {}, None, dt.datetime(2023, 11, 14)])
def test_what_is_no_start_is_refused_by_name(start: object) -> None:
    with pytest.raises(OptionError, match="start"):
        parse_start(start, None)


def test_ends() -> None:
    at = AtTime(1_700_000_000_000)
    assert parse_until("latest") == parse_until(None) == Latest()
    assert parse_until("timestamp:2023-11-14T22:13:20Z") == parse_until("timestamp:1700000000000") == at
    assert parse_until(dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC), 1_700_000_000_000) == at
    assert parse_until({"a-b-0": 3}) == AtOffsets({"a-b-0": 3})


@pytest.mark.parametrize("until", ["earliest", "group", {"events-0": -1}, {}, 7, "timestamp:soon"])
def test_what_is_no_end_is_refused_by_name(until: object) -> None:
    with pytest.raises(OptionError, match="until="):
        parse_until(until)


def test_a_time_that_has_not_come_is_no_end() -> None:
    with pytest.raises(OptionError, match="has not come yet"):
        parse_until("timestamp:1700000000001", 1_700_000_000_000)
