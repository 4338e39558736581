"""PubSubSource: what is refused when it is described, and what it says of itself."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.pubsub import PubSubSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import JobFailedError, OptionError


class Order(NamedTuple):
    id: int
    customer: str


def source(**options: Any) -> PubSubSource:
    return PubSubSource(
        **{"subscriptions": ["orders"], "project_id": "shop", "value": Json(Order), **options}
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscriptions": []}, "give the names of subscriptions, each once"),
        ({"subscriptions": ["a", "a"]}, "give the names of subscriptions, each once"),
        ({"subscriptions": ["shop/orders"]}, "subscription 'shop/orders': give its name alone"),
        ({"project_id": None}, "subscription 'orders': say of which project_id= it is"),
        ({"prefetch": 0}, "prefetch=0: give a number from 1 on"),
        ({"ack_deadline": "900 ms"}, "ack_deadline='900 ms': give a time from"),
        ({"ack_deadline": "11 min"}, "ack_deadline='11 min': give a time from"),
        ({"remember": "59 s"}, "remember='59 s' is too short for ack_deadline='30 s'"),
        ({"lease": "59 s"}, "lease='59 s' is too short for checkpoints"),
        ({"until_quiet": "soon"}, "until_quiet"),
        ({"until_quiet": "30 s"}, "until_quiet='30 s' is over before messages of an attempt that died"),
        ({"timeout": "soon"}, "timeout"),
        ({"value": Json()}, "can only encode"),
        ({"id_column": "id"}, "two columns of the source are named 'id'"),
        ({"attribute_columns": {"id": "kind"}}, "two columns of the source are named 'id'"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        source(**options)


def test_its_columns_are_those_of_the_data_and_of_what_is_known_beside() -> None:
    described = source(id_column="message", attribute_columns={"kind": "event-type"})
    assert described.schema.names == ["id", "customer", "message", "kind"]
    assert described.project(frozenset({"kind"})).schema.names == ["kind"]
    assert described.record_type is Order
    assert not described.is_bounded
    assert source(until_quiet="1 min").is_bounded
    assert pickle.loads(pickle.dumps(described)) == described


def test_each_subscription_is_a_split_with_its_whole_name() -> None:
    described = source(subscriptions=["a", "projects/other/subscriptions/b"])
    splits = described.open_enumerator("job", SystemClock()).initial_splits()
    paths = ["projects/shop/subscriptions/a", "projects/other/subscriptions/b"]
    assert [split.split_id for split in splits] == paths
    assert source(subscriptions="a").subscriptions == ("a",)
    assert described.plan_note.startswith("exactly once: acknowledged with the checkpoint")


def test_a_job_with_too_long_a_checkpoint_interval_ends_before_anything_is_read(tmp_path: Path) -> None:
    job = Job("too-rare")
    job.source(source(lease="1 min"), uid="orders").print()
    with pytest.raises(JobFailedError, match=r"source 'orders': .* 30 s apart, .* or give a longer lease="):
        job.run(master="threads[1]", checkpoint_dir=str(tmp_path), checkpoint_interval="30 s")
