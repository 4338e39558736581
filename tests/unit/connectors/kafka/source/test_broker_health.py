"""What a reader knows of its brokers: away is one thing, throttled another."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.source.broker_health import ReaderConnection
from onceflow.connectors.kafka.source.reader_options import ReaderOptions
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext

PARTITION = ("events", 0)
SILENT_US = 9_000_000


def statistics(silent_us: int) -> str:
    """The statistics of a broker that was asked as long ago as it has been silent."""
    broker = {"nodeid": 1, "state": "UP", "rxidle": silent_us, "txidle": silent_us, "waitresp_cnt": 1}
    topics = {"events": {"partitions": {"0": {"leader": 1}}}}
    return json.dumps({"brokers": {"b:1/1": broker}, "topics": topics})


def opened() -> tuple[ReaderConnection, ManualClock, list[str]]:
    told: list[str] = []
    clock = ManualClock()
    return ReaderConnection(KafkaOptions("b:1"), 10_000, clock, told.append), clock, told


def test_a_broker_that_throttles_us_is_not_away_but_said_to_throttle() -> None:
    connection, clock, told = opened()
    connection.on_throttle(SimpleNamespace(throttle_time=12.0))
    connection.on_statistics(statistics(SILENT_US))
    assert not connection.is_away(PARTITION)
    connection.check([PARTITION])
    assert told == [
        "Kafka at b:1 throttles this client for 12.0 s: the quota of its user or client.id is used up"
    ]
    assert not connection.is_sound  # so that check is called, which takes the word back
    clock.advance(12_001)
    connection.on_statistics(statistics(1_000))
    connection.check([PARTITION])
    assert told[1:] == [""]
    assert connection.is_sound


def test_a_broker_that_is_silent_for_longer_than_it_said_is_away() -> None:
    connection, clock, told = opened()
    connection.on_mute(2_000)
    clock.advance(2_001)
    connection.on_statistics(statistics(SILENT_US))
    assert connection.is_away(PARTITION)
    connection.check([PARTITION])
    clock.advance(1_000)
    connection.check([PARTITION])
    assert "is away since" in told[-1]


def test_a_moment_of_throttling_is_not_worth_a_word() -> None:
    connection, _, told = opened()
    connection.on_mute(200)
    assert not told
    assert connection.is_sound
    connection.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert not connection.is_sound


def test_a_users_own_callback_for_throttling_is_called_too() -> None:
    connection, _, told = opened()
    events: list[Any] = []
    kafka = KafkaOptions("b:1", {"throttle_cb": events.append})
    context = ReaderContext("job", "uid", 0, 1, ManualClock())
    settings = ReaderOptions(kafka, "read_committed", None, 1_000).consumer(context, connection)
    settings["throttle_cb"](SimpleNamespace(throttle_time=3.0))
    assert len(events) == len(told) == 1
