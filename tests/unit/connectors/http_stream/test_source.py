"""HttpStreamSource: what is refused when it is described."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest

from onceflow.connectors.formats import Json
from onceflow.connectors.http_stream import HttpStreamSource
from onceflow.runtime.errors import OptionError


class Trade(NamedTuple):
    symbol: str
    cents: int


def source(**options: Any) -> HttpStreamSource:
    return HttpStreamSource(**{"urls": ["http://localhost:1/a"], "value": Json(Trade), **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": []}, "give addresses that begin with http"),
        ({"urls": "localhost:80"}, "give addresses that begin with http"),
        ({"urls": ["http://a", "http://a"]}, "names an address twice"),
        ({"framing": "sse"}, "framing='sse': write 'server-sent-events' or 'json-lines'"),
        ({"without_ids": "skip"}, "without_ids='skip': write 'refuse' or 'at-most-once'"),
        ({"id_field": "id"}, "server-sent events have ids of their own"),
        ({"framing": "json-lines"}, "name the field with a line's id with id_field="),
        ({"framing": "json-lines", "id_field": "id"}, 'resume_parameter="since_id"'),
        ({"value": Json()}, "can only encode"),
        ({"silence": "soon"}, "silence"),
        ({"timeout": "soon"}, "timeout"),
        ({"id_column": "symbol"}, "two columns of the source are named 'symbol'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_its_columns_are_those_of_the_data_and_of_what_is_known_beside() -> None:
    described = source(id_column="id", event_column="event", url_column="url")
    assert described.schema.names == ["symbol", "cents", "id", "event", "url"]
    assert described.project(frozenset({"id"})).schema.names == ["id"]
    assert described.record_type is Trade
    assert not described.is_bounded
    assert pickle.loads(pickle.dumps(described)) == described


def test_the_plan_says_what_is_promised() -> None:
    assert source().plan_note.startswith("exactly once")
    assert "at most once" in source(without_ids="at-most-once").plan_note


def test_each_address_is_a_split_that_begins_where_it_is_told() -> None:
    enumerator = source(urls=["http://a", "http://b"], start_after="7").open_enumerator("job", None)  # type: ignore[arg-type]
    assert [(s.split_id, s.position["last_event_id"]) for s in enumerator.initial_splits()] == [
        ("http://a", "7"),
        ("http://b", "7"),
    ]
