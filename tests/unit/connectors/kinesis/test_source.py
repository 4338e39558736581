"""KinesisSource: what is refused when it is described, and what it says of itself."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.kinesis import KinesisSource
from onceflow.runtime.errors import OptionError

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


class Trade(NamedTuple):
    id: int
    shard: str


def source(**options: Any) -> KinesisSource:
    return KinesisSource(**{"stream": "trades", "value": Json(Trade), **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"stream": ""}, "give the name of a stream, or its ARN"),
        ({"start": "trim-horizon"}, 'write "earliest" or "latest", or give a datetime'),
        ({"start": NOON.replace(tzinfo=None)}, "has no time zone"),
        ({"until": "earliest"}, 'write "latest", or give a datetime'),
        ({"start": "latest", "until": "latest"}, "reads nothing"),
        ({"start": NOON, "until": NOON - dt.timedelta(days=1)}, "is before start="),
        ({"fetch_interval": "soon"}, "fetch_interval"),
        ({"discovery_interval": "soon"}, "discovery_interval"),
        ({"timeout": "soon"}, "timeout"),
        ({"value": Json()}, "can only encode"),
        ({"shard_column": "shard"}, "two columns of the source are named 'shard'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_a_run_gives_it_an_end_by_the_time_of_arrival() -> None:
    ended = source().ended(f"timestamp:{NOON.isoformat()}")
    assert ended.until == NOON - dt.timedelta(milliseconds=1), "until= is the last time that is read"
    assert source().ended(f"timestamp:{int(NOON.timestamp() * 1000)}") == ended
    assert source().ended("latest").until == "latest"
    for wrong, why in (({"shard": 5}, "write latest, or a time"), ("timestamp:soon", "'soon' is no time")):
        with pytest.raises(OptionError, match=why):
            source().ended(wrong)


def test_its_columns_are_those_of_the_data_and_of_what_is_known_beside() -> None:
    described = source(partition_key_column="key", arrival_time_column="at", start=NOON)
    assert described.schema.names == ["id", "shard", "key", "at"]
    assert described.project(frozenset({"at"})).schema.names == ["at"]
    assert described.record_type is Trade
    assert not described.is_bounded
    assert source(until=NOON).is_bounded
    assert pickle.loads(pickle.dumps(described)) == described
    assert described.plan_note.startswith("exactly once: sequence numbers are in the checkpoint")
