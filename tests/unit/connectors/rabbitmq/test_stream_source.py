"""RabbitStreamSource: what is refused when it is described, and what it says of itself."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.rabbitmq import RabbitStreamSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OptionError


class Order(NamedTuple):
    id: int
    customer: str


def source(**options: Any) -> RabbitStreamSource:
    return RabbitStreamSource(**{"streams": ["orders"], "value": Json(Order), **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"streams": []}, "give either streams=, or the name of a super_stream="),
        ({"super_stream": "all"}, "give either streams=, or the name of a super_stream="),
        ({"streams": ["a", "a"]}, "give the names of streams, each once"),
        ({"url": "http://localhost"}, "begins with amqp:// or amqps://"),
        ({"prefetch": 0}, "prefetch=0: give a number from 1 to 65535"),
        ({"start": "first"}, 'start=\'first\': write "earliest" or "latest", or give an offset'),
        ({"start": -1}, "start=-1: write"),
        ({"start": True}, "start=True: write"),
        ({"start": dt.datetime(2026, 1, 1)}, "has no time zone"),
        ({"until": "now"}, "until='now': write \"latest\""),
        ({"until": {"orders": -1}}, 'offsets such as {"orders": 17}'),
        ({"start": "latest", "until": "latest"}, "reads nothing"),
        ({"if_truncated": "ignore"}, 'if_truncated=\'ignore\': write "fail" or "skip"'),
        ({"timeout": "soon"}, "timeout"),
        ({"discovery_interval": "soon"}, "discovery_interval"),
        ({"value": Json()}, "can only encode"),
        ({"offset_column": "id"}, "two columns of the source are named 'id'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_a_run_gives_it_an_end_by_offsets_and_not_by_time() -> None:
    assert source().ended("latest").until == "latest"
    assert source().ended({"orders": 17}).until == {"orders": 17}
    with pytest.raises(OptionError, match="no exact end by time: write latest, or the folder of a job"):
        source().ended("timestamp:5")


def test_its_columns_are_those_of_the_body_and_of_what_is_known_beside() -> None:
    described = source(offset_column="at", stream_column="of")
    assert described.schema.names == ["id", "customer", "at", "of"]
    assert described.project(frozenset({"at"})).schema.names == ["at"]
    assert described.record_type is Order
    assert not described.is_bounded
    assert source(until="latest").is_bounded
    assert pickle.loads(pickle.dumps(described)) == described


def test_new_partitions_are_looked_for_in_a_super_stream_only() -> None:
    endless = source(streams=(), super_stream="all").open_enumerator("job", SystemClock())
    assert endless.discovery_interval_ms == 10_000
    assert source().open_enumerator("job", SystemClock()).discovery_interval_ms is None


def test_neither_its_text_nor_the_plan_shows_the_address() -> None:
    described = source(url="amqp://shop:${SECRET}@host/")
    assert "SECRET" not in repr(described) + described.plan_note
