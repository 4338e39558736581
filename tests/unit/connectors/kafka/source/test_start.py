"""What a user gives as `start=`."""

from __future__ import annotations

import datetime as dt

import pytest

from onceflow.connectors.kafka.source.start import parse_start
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
