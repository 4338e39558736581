"""RabbitQueueSource: what is refused when it is described, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.rabbitmq import RabbitQueueSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OptionError


class Order(NamedTuple):
    id: int
    customer: str


def source(**options: Any) -> RabbitQueueSource:
    return RabbitQueueSource(**{"queues": ["orders"], "value": Json(Order), **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queues": []}, "give the names of queues, each once"),
        ({"queues": ["a", "a"]}, "give the names of queues, each once"),
        ({"url": "http://localhost"}, "begins with amqp:// or amqps://"),
        ({"prefetch": 0}, "prefetch=0: give a number from 1 to 65535"),
        ({"prefetch": 100_000}, "prefetch=100000: give a number from 1 to 65535"),
        ({"consumer_timeout": "10 s"}, "consumer_timeout='10 s' is too short"),
        ({"remember": "soon"}, "remember"),
        ({"timeout": "soon"}, "timeout"),
        ({"value": Json()}, "can only encode"),
        ({"id_column": "id"}, "two columns of the source are named 'id'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_its_columns_are_those_of_the_body_and_of_what_is_known_beside() -> None:
    described = source(id_column="message", routing_key_column="to")
    assert described.schema.names == ["id", "customer", "message", "to"]
    assert described.project(frozenset({"to"})).schema.names == ["to"]
    assert described.record_type is Order
    assert not described.is_bounded
    assert pickle.loads(pickle.dumps(described)) == described


def test_each_queue_is_a_split() -> None:
    splits = source(queues=["a", "b"]).open_enumerator("job", SystemClock()).initial_splits()
    assert [split.split_id for split in splits] == ["a", "b"]
    assert source(queues="a").queues == ("a",)


def test_neither_its_text_nor_the_plan_shows_the_address() -> None:
    described = source(url="amqp://me:${SECRET}@host")
    assert "SECRET" not in repr(described)
    assert described.plan_note.startswith("exactly once: acknowledged with the checkpoint")
