"""A broker that goes away: the reader says so and goes on when it is back, or gives up after a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.errors import Retryable
from tests.pace import slowness

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("all_ways")]


@pytest.fixture(scope="module")
def mortal(module_broker: Callable[..., Any]) -> Any:
    return module_broker()


def source(broker: Any, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topic, value=Raw(), **options)


def new_topic(broker: Any, prefix: str) -> str:
    name: str = broker.create_topic(f"{prefix}-{time.monotonic_ns()}", 1)
    return name


def produce(broker: Any, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_a_killed_broker_is_waited_for_and_reading_goes_on_exactly(mortal: Any, reading: Any) -> None:
    topic = new_topic(mortal, "killed")
    produce(mortal, topic, b"1", b"2")
    read = reading(source(mortal, topic)).to_the_end()
    mortal.kill()
    read.until(lambda: not read.at_end)  # nobody knows now whether there is more: not idle
    read.until(lambda: len(read.waits) > 2)
    assert f"{topic}-0 can't be read" in read.waits[-1]
    assert f"Kafka at {mortal.bootstrap_servers} is away since" in read.waits[-1]
    mortal.start()
    read.to_the_end()
    produce(mortal, topic, b"3")
    read.until(lambda: len(read.rows) == 3).to_the_end()
    assert read.offsets() == [0, 1, 2]


def test_a_broker_that_stays_away_is_given_up_after_the_stated_time(mortal: Any, reading: Any) -> None:
    topic = new_topic(mortal, "given-up")
    read = reading(source(mortal, topic, broker_timeout="2 s")).to_the_end()
    mortal.kill()
    began = time.monotonic()
    with pytest.raises(Retryable, match=rf"is away since 2 s, so {topic}-0 can't be read: .*\(2 s\)"):
        read.until(lambda: False)
    assert time.monotonic() - began < 15 * slowness()
    mortal.start()
    produce(mortal, topic, b"1")
    read.until(lambda: len(read.rows) == 1)  # a Retryable may be polled again


def test_a_frozen_broker_is_noticed_although_its_connections_stay_open(mortal: Any, reading: Any) -> None:
    topic = new_topic(mortal, "frozen")
    read = reading(source(mortal, topic)).to_the_end()
    mortal.pause()
    try:
        read.until(lambda: not read.at_end)
        read.until(lambda: bool(read.waits))
    finally:
        mortal.resume()
    read.to_the_end()
