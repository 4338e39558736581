"""KafkaSource on a real broker passes the suite that every source has to pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onceflow.connectors.formats import Text
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.contracts import Source
from onceflow.runtime.testing.conformance import PAUSING_CHECKS, SOURCE_CHECKS

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("all_ways")]


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_kafka_source(check: Callable[[Source], None], cluster: Any, new_topic: Any, way: Any) -> None:
    """Several polls' worth, an empty partition, and transactions with gaps between offsets."""
    topic = new_topic("conformance", partitions=4)
    cluster.produce(topic, *(b"a-%d" % i for i in range(12_000)))
    cluster.produce(topic, *(b"b-%d" % i for i in range(50)), partition=1)
    cluster.transaction(topic, b"gone", partition=2).abort_transaction(30)
    cluster.transaction(topic, b"c-1", b"c-2", partition=2).commit_transaction(30)
    source = KafkaSource(
        bootstrap_servers=cluster.servers, topics=topic, value=Text(), until="latest", offset_column="at"
    )
    check(way.of(source))


@pytest.mark.parametrize("check", PAUSING_CHECKS, ids=lambda check: check.__name__)
def test_a_kafka_source_pauses(
    check: Callable[[Source], None], cluster: Any, new_topic: Any, way: Any
) -> None:
    """Few records, since each poll of these is a pause and its end; with gaps between offsets."""
    topic = new_topic("pausing", partitions=3)
    cluster.produce(topic, *(b"a-%d" % i for i in range(12)))
    cluster.produce(topic, *(b"b-%d" % i for i in range(4)), partition=1)
    cluster.transaction(topic, b"gone", partition=2).abort_transaction(30)
    cluster.transaction(topic, b"c-1", b"c-2", partition=2).commit_transaction(30)
    source = KafkaSource(bootstrap_servers=cluster.servers, topics=topic, value=Text(), until="latest")
    check(way.of(source))
