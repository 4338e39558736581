"""NifiSource: what is refused when it is described, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.nifi import NifiSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import OptionError


class Order(NamedTuple):
    id: int
    customer: str


def source(**options: Any) -> NifiSource:
    return NifiSource(**{"urls": ["http://nifi:8080"], "port": "orders", "value": Json(Order), **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": []}, "give the names of nodes, each once"),
        ({"urls": ["nifi:8080"]}, "begins with http:// or https://"),
        ({"port": ""}, "port='': give the name of an output port, or its id"),
        ({"prefetch": 0}, "prefetch=0: give a number from 1 on"),
        ({"batch": 0}, "batch=0: give a number from 1 on"),
        ({"lease": "29 s"}, "lease='29 s' is too short for checkpoints"),
        ({"remember": "soon"}, "remember"),
        ({"until_quiet": "soon"}, "until_quiet"),
        ({"timeout": "soon"}, "timeout"),
        ({"value": Json()}, "can only encode"),
        ({"attribute_columns": {"id": "filename"}}, "two columns of the source are named 'id'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_its_columns_are_those_of_the_content_and_of_what_is_known_beside() -> None:
    described = source(id_column="uuid", attribute_columns={"file": "filename"})
    assert described.schema.names == ["id", "customer", "uuid", "file"]
    assert described.project(frozenset({"file"})).schema.names == ["file"]
    assert described.record_type is Order
    assert (described.is_bounded, source(until_quiet="1 s").is_bounded) == (False, True)
    assert pickle.loads(pickle.dumps(described)) == described
    assert described.plan_note.startswith("exactly once: confirmed with the checkpoint")


def test_each_node_is_a_split() -> None:
    splits = source(urls=["http://a", "https://b"]).open_enumerator("job", SystemClock()).initial_splits()
    assert [split.split_id for split in splits] == ["http://a", "https://b"]
    assert source(urls="http://a").urls == ("http://a",)
