"""PostgresCdcSource: what is refused when it is described, and what it says of itself."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import pytest

from onceflow import Job
from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.sinks.postgres import PostgresSink


class Order(NamedTuple):
    id: int
    customer: str


def source(**options: Any) -> PostgresCdcSource:
    given = {"url": "host=nowhere", "table": "orders", "of": Order, "slot": "orders", "publication": "orders"}
    return PostgresCdcSource(**{**given, **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": ""}, "url must be a text that is not empty"),
        ({"table": ""}, "table must be a text that is not empty"),
        ({"publication": None}, "publication must be a text that is not empty"),
        ({"slot": "Orders"}, "slot='Orders': use small letters, digits and _"),
        ({"slot": "a" * 64}, "63 at most"),
        ({"start": "now"}, "start='now': write 'table' or 'slot'"),
        ({"before": "none"}, "before='none': write 'required' or 'optional'"),
        ({"truncate": "no"}, "truncate='no': write 'refuse' or 'skip'"),
        ({"timeout": "soon"}, "timeout"),
        ({"of": int}, "of=<class 'int'>: give a record type or an Arrow schema"),
        ({"lsn_column": "id"}, "two columns of the source are named 'id'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_what_is_no_record_type_is_refused() -> None:
    with pytest.raises(GraphError, match="PostgresCdcSource"):
        source(of=object())


def test_a_run_gives_it_the_end_that_its_log_has_now() -> None:
    assert source().ended("latest") == source(bounded=True)
    with pytest.raises(OptionError, match=r"not looked up by time .*: write latest"):
        source().ended("timestamp:5")


def test_its_columns_are_those_of_the_table_and_of_what_is_known_beside() -> None:
    described = source(commit_time_column="at", lsn_column="lsn")
    assert described.schema.names == ["id", "customer", "at", "lsn"]
    assert described.project(frozenset({"lsn", "id"})).schema.names == ["id", "lsn"]
    assert described.record_type is Order
    assert not described.is_bounded
    assert source(bounded=True).is_bounded
    assert pickle.loads(pickle.dumps(described)) == described


def test_neither_its_text_nor_the_plan_shows_the_address() -> None:
    described = source(url="host=h password=secret")
    assert "secret" not in repr(described)
    assert described.plan_note.startswith("exactly once: the table's rows, then its changes")
    assert source(start="slot").plan_note.startswith("exactly once: the table's changes")


def test_a_sink_that_only_appends_is_refused() -> None:
    job = Job("copy")
    rows = job.source(source(), uid="orders")
    rows.sink_to(PostgresSink("host=nowhere", "copy"), uid="copy")
    with pytest.raises(GraphError, match="the updates and deletes of 'orders'"):
        job.build()
