"""KafkaSource: its options are read at the door, and nothing is opened there."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json, Raw, Text
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.source.dead_letters import DeadLetterSink
from onceflow.connectors.kafka.split import KafkaSplit, KafkaSplitEnumerator, Subscription
from onceflow.connectors.kafka.starts import Earliest
from onceflow.runtime.contracts import DeadLetterSource, ProjectableSource, Source
from onceflow.runtime.errors import OptionError
from onceflow.sinks.print import PrintSink


@dataclass
class Purchase:
    user: str
    amount: int
    ts: int


def source(**options: Any) -> KafkaSource:
    if "topic_pattern" not in options:
        options.setdefault("topics", ["events"])
    options.setdefault("value", Json(Purchase))
    return KafkaSource(bootstrap_servers="localhost:9092", **options)


def test_it_is_a_source_that_projects_and_has_dead_letters() -> None:
    described: Source = source()
    assert isinstance(described, ProjectableSource)
    assert isinstance(described, DeadLetterSource)
    assert described.record_type is Purchase
    assert not described.is_bounded
    assert source(until="latest").is_bounded
    assert pickle.loads(pickle.dumps(described)) == described


def test_columns_are_the_keys_then_the_values_then_kafkas() -> None:
    described = source(key=Text("id"), key_prefix="key_", timestamp="written", headers="headers")
    assert described.schema.names == ["key_id", "user", "amount", "ts", "headers", "written"]
    assert described.schema.field("written").type == pa.timestamp("ms", "UTC")
    part = described.project(frozenset({"written", "key_id"}))
    assert part.schema.names == ["key_id", "written"]
    assert part.project(frozenset({"written"})).schema.names == ["written"]
    with pytest.raises(OptionError, match="did you mean 'amount'"):
        described.project(frozenset({"amont"}))


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(OptionError, match="two columns of the source are named 'user'"):
        source(key=Text("user"))
    with pytest.raises(OptionError, match="'ts'"):
        source(timestamp="ts")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"topics": []}, "either topics="),
        ({"topics": ["a"], "topic_pattern": "a.*"}, "either topics="),
        ({"topic_pattern": "a("}, "not a regular expression"),
        ({"until": "now"}, 'write "latest"'),
        ({"isolation": "dirty"}, "read_committed"),
        ({"errors_tolerance": "some"}, '"none" or "all"'),
        ({"errors_tolerance": "all"}, "needs a place .*give dead_letters="),
        ({"dead_letter_topic": "dead"}, "of no use"),
        (
            {"errors_tolerance": "all", "dead_letter_topic": "dead", "dead_letters": PrintSink("bad")},
            "two places",
        ),
        ({"errors": {"errors.tolerence": "all"}}, "did you mean 'errors.tolerance'"),
        ({"start": "beginning"}, '"earliest", "latest"'),
        ({"start": "group"}, "needs a group_id"),
        ({"start": "timestamp:yesterday"}, "neither ms nor"),
        ({"start": "timestamp:2026-01-31T00:00:00"}, "no time zone"),
        ({"start": {"events-0": -1}}, "events-0"),
        ({"start": {}}, "earliest"),
        ({"discovery_interval": "soon"}, "discovery_interval"),
        ({"broker_timeout": "-1 s"}, "broker_timeout"),
        ({"value": Json()}, r"value=Json.* can only encode"),
        ({"key": Json()}, r"key=Json.* can only encode"),
        ({"librdkafka": {"enable.auto.commit": True}}, "'enable.auto.commit' can't be given"),
        ({"librdkafka": {"isolation.level": "read_uncommitted"}}, "give isolation="),
    ],
)
def test_a_wrong_option_is_refused_by_name_at_once(options: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        source(**options)


def test_kafka_connects_names_for_errors_work_too() -> None:
    described = source(
        errors={"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
        librdkafka={"client.id": "x"},
    )
    sink = described.dead_letter_sink()
    assert sink == DeadLetterSink("localhost:9092", "dead", {"client.id": "x"})
    assert described.project(frozenset({"user"})).dead_letter_sink() == sink
    assert source().dead_letter_sink() is None


def test_dead_letters_go_to_any_sink_as_with_other_sources() -> None:
    sink = PrintSink("bad")
    described = source(dead_letters=sink)
    assert described.errors_tolerance == "all", "a bad record ends nothing"
    assert described.dead_letter_sink() is sink
    assert described.project(frozenset({"user"})).dead_letter_sink() is sink
    assert source(dead_letters=sink, errors_tolerance="all") == described


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(source(librdkafka={"sasl.password": "hunter2"}))


def test_a_split_is_its_state_and_back() -> None:
    split = KafkaSplit("a-b", "id", 3, 17, 20)
    assert split.split_id == "a-b-3"
    assert KafkaSplit.from_state(split.state()) == split
    assert not split.is_finished
    assert KafkaSplit("t", "id", 0, 20, 20).is_finished
    assert not KafkaSplit("t", "id", 0, 20).is_finished


def test_raw_values_need_no_type() -> None:
    assert source(value=Raw()).schema == pa.schema([("value", pa.binary())])
    assert source(value=Raw()).record_type is None


@pytest.mark.parametrize(("is_bounded", "stop_offset"), [(True, None), (False, 20)])
def test_until_that_does_not_apply_to_restored_splits_is_said(
    is_bounded: bool, stop_offset: int | None
) -> None:
    """Where reading ends is fixed when the checkpoint folder is started."""
    metadata: Any = None  # asks nobody
    interval_ms = None if is_bounded else 1_000
    enumerator = KafkaSplitEnumerator(
        metadata, Subscription(("t",)), Earliest(), "read_committed", interval_ms
    )
    fitting = KafkaSplit("t", "id", 0, 10, 20 if is_bounded else None)
    others = [KafkaSplit("t", "id", number, 10, stop_offset) for number in (1, 2)]
    assert enumerator.warnings([fitting.state()]) == []
    (warning,) = enumerator.warnings([split.state() for split in (fitting, *others)])
    assert "t-1 and 1 more" in warning
    assert "new checkpoint folder" in warning
