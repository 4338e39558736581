"""Whether brokers may be spoken to past librdkafka: not if the user asks for what only librdkafka does."""

from __future__ import annotations

from typing import Any

import pytest

from onceflow.connectors.kafka.fetch.lane_opener import fetch_limits
from onceflow.connectors.kafka.protocol.eligibility import DIRECT_FETCH_VARIABLE, may_be_direct


@pytest.mark.parametrize(
    ("settings", "is_direct"),
    [
        ({}, True),
        ({"client.id": "me", "fetch.max.bytes": 1_000, "security.protocol": "PLAINTEXT"}, True),
        ({"security.protocol": "SASL_PLAINTEXT"}, False),  # Kerberos, if nothing is said
        ({"security.protocol": "ssl"}, True),
        ({"throttle_cb": print}, False),
        ({"plugin.library.paths": "monitoring-interceptor"}, False),
        ({"broker.address.family": "v6"}, False),
        ({"socket.receive.buffer.bytes": 1 << 20}, False),
    ],
)
def test_what_only_librdkafka_does_is_left_to_it(settings: dict[str, Any], is_direct: bool) -> None:
    assert may_be_direct(settings, DIRECT_FETCH_VARIABLE) is is_direct


def test_the_environment_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECT_FETCH_VARIABLE, "Off")
    assert not may_be_direct({}, DIRECT_FETCH_VARIABLE)


@pytest.mark.parametrize(
    ("settings", "answer", "partition"),
    [
        ({}, 8 << 20, 1 << 20),
        ({"max.partition.fetch.bytes": 5_000}, 8 << 20, 5_000),
        ({"max.partition.fetch.bytes": 5_000, "fetch.message.max.bytes": 7_000}, 8 << 20, 7_000),
        ({"fetch.message.max.bytes": 7_000, "max.partition.fetch.bytes": 5_000}, 8 << 20, 5_000),
        ({"fetch.max.bytes": "900000"}, 900_000, 1 << 20),
        ({"queued.max.messages.kbytes": 100}, 100 << 10, 1 << 20),
    ],
)
def test_sizes_of_answers_are_those_of_librdkafka_under_either_name(
    settings: dict[str, Any], answer: int, partition: int
) -> None:
    limits = fetch_limits(settings)
    assert (limits.answer, limits.partition) == (answer, partition)
