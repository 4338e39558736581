"""KafkaSink without a broker: what is refused when the graph is built, and rows as records."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.formats import Json, Raw
from onceflow.connectors.kafka.produce.row_encoder import HEADERS_TYPE
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import GraphError, OptionError, UsageError
from onceflow.sinks.kafka import KafkaSink

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("h", HEADERS_TYPE), ("p", pa.int32())])


KERBEROS = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}


def sink(**options: Any) -> KafkaSink:
    return KafkaSink("localhost:9092", **{"topic": "out", **options})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "usr"}, r"sink 'totals': key='usr' names a column .*did you mean 'user'"),
        ({"key": "n"}, r"key='n' is int64: give key_format=Json\(\)"),
        ({"partitioner": "murmur3"}, "partitioner='murmur3' names a column"),
        ({"partitioner": "user"}, "partitioner='user' must be an integer column"),
        ({"headers": "n"}, "headers='n' must be list"),
        ({"value": Raw("vlue")}, "vlue"),
        ({"topic_column": "usr"}, "topic_column='usr' names a column .*did you mean 'user'"),
        ({"topic_column": "n"}, "topic_column='n' must be a text column, not int64"),
    ],
)
def test_wrong_column_is_named_when_the_graph_is_built(options: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        sink(**options).check(SCHEMA, "totals")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timestamp": "now"}, "timestamp"),
        ({"transaction_timeout": "soon"}, "transaction_timeout"),
        ({"ledger_topic": "out"}, "ledger needs a topic of its own"),
        ({"key_format": Json()}, "key_format"),
        ({"upsert": True}, "upsert=True needs a key"),
        ({"upsert": True, "key": "user", "partitioner": "p"}, "leave partitioner out"),
        ({"topic": ""}, "name of a topic"),
        ({"topic": None}, "give topic=, or with topic_column="),
        ({"librdkafka": {"acks": 1}}, "acks"),
        (
            {"two_phase": True, "librdkafka": KERBEROS},
            "not possible with these settings",
        ),
    ],
)
def test_wrong_option_is_refused_where_it_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        sink(**options)


def test_description_is_picklable_and_shows_no_secret() -> None:
    described = sink(librdkafka={"sasl.password": "hunter2"})
    assert pickle.loads(pickle.dumps(described)) == described
    assert "hunter2" not in repr(described)


def test_only_an_upserting_sink_takes_changes_and_wants_a_keys_rows_together() -> None:
    assert not sink(key="user").takes_kinds
    assert not sink(key="user").partition_columns
    assert sink(key=["user", "n"], key_format=Json(), upsert=True).takes_kinds
    assert sink(key=["user", "n"], key_format=Json(), upsert=True).partition_columns == ("user", "n")


def context(interval_ms: int) -> SinkContext:
    files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
    clock = ManualClock()
    return SinkContext(
        "job", "beef", "out", 0, 1, 1, 0, files, clock, SCHEMA, checkpoint_interval_ms=interval_ms
    )


@pytest.mark.parametrize(
    ("options", "interval_ms"), [({}, 7 * 60_001), ({"transaction_timeout": "2 min"}, 30_001)]
)
def test_what_a_checkpoint_promises_outlives_a_restart(options: dict[str, Any], interval_ms: int) -> None:
    with pytest.raises(UsageError, match="sink 'out': two_phase=True with transaction_timeout"):
        sink(two_phase=True, **options).open_writer(context(interval_ms))
