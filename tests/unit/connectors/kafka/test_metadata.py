"""How long a cluster that does not answer is waited for. What one answers is asked of real brokers, in
tests/integration/kafka_source."""

from __future__ import annotations

import pytest

from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.split import KafkaSplit, KafkaSplitEnumerator, Subscription
from onceflow.connectors.kafka.starts import Earliest
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import Unavailable

NOBODY = "127.0.0.1:1"


def enumerator(first_answer_ms: int | None) -> KafkaSplitEnumerator:
    metadata = ClusterMetadata(KafkaOptions(NOBODY), SystemClock(), 600, "broker_timeout")
    return KafkaSplitEnumerator(
        metadata, Subscription(("events",)), Earliest(), "read_committed", None, first_answer_ms
    )


def test_an_address_at_which_nobody_has_ever_answered_is_given_up_sooner() -> None:
    with pytest.raises(Unavailable, match=rf"Kafka at {NOBODY}: .*Waited for 0.3 s, since nobody has ever"):
        enumerator(300).initial_splits()


def test_one_that_a_job_has_read_from_is_waited_for_as_long_as_the_option_says() -> None:
    read = KafkaSplit("events", "id", 0, 17).state()
    with pytest.raises(Unavailable, match=r"Waited for broker_timeout \(0.6 s\)"):
        enumerator(300).check_restored([read])


def test_so_is_any_address_if_the_user_has_said_how_long() -> None:
    with pytest.raises(Unavailable, match=r"Waited for broker_timeout \(0.6 s\)"):
        enumerator(None).initial_splits()
