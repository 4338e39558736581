"""ReaderConnection: what is said of brokers that are away, that nobody asks, and that throttle."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.source.broker_health import ReaderConnection
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import Fatal, Unavailable

NEEDED = [("t", 0), ("t", 1)]
SILENT = {"state": "UP", "rxidle": 6_000_000, "txidle": 5_900_000, "waitresp_cnt": 1}


class Seen:
    """A connection to two brokers; broker 1 leads t-0, broker 2 leads t-1."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.said: list[str] = []
        options = KafkaOptions("one:9092,two:9092")
        self.connection = ReaderConnection(options, 10_000, self.clock, self.said.append)

    def look(self, first: dict[str, Any], second: dict[str, Any], after_ms: int = 0, **of_first: Any) -> None:
        """The statistics of a moment, and what the reader does then. `of_first`: of partition t-0."""
        self.clock.advance(after_ms)
        brokers = {"one": {"nodeid": 1, **first}, "two": {"nodeid": 2, **second}}
        leaders = {"0": {"leader": 1, **of_first}, "1": {"leader": 2}, "-1": {"leader": -1}}
        text = json.dumps({"brokers": brokers, "topics": {"t": {"partitions": leaders}}})
        self.connection.on_statistics(text)
        if not self.connection.is_sound:
            self.connection.check(NEEDED)


UP = {"state": "UP"}
UNASKED = {"state": "INIT"}
TRYING = {"state": "TRY_CONNECT"}


def test_regression_a_broker_of_which_nothing_is_asked_was_called_away() -> None:
    """What is read directly is asked of it elsewhere; its idle connection is closed, and stays so."""
    seen = Seen()
    seen.look(UP, UP)
    for _ in range(20):
        seen.look(UP, UNASKED, after_ms=1_000)
    assert seen.connection.is_sound
    assert not seen.said


def test_regression_brokers_that_closed_idle_connections_were_called_away_together() -> None:
    """librdkafka calls that all brokers down, once, and connects no sooner than something is asked of one."""
    seen = Seen()
    seen.look(UP, UP)
    seen.connection.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    for _ in range(20):
        seen.look(UNASKED, UNASKED, after_ms=1_000)
    assert not seen.said
    seen.connection.on_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down"))
    for _ in range(2):
        seen.look(TRYING, TRYING, after_ms=1_000)
    assert "is away since 1 s, so t-0 and 1 more can't be read" in seen.said[-1]


def test_regression_away_since_0_s_was_said_of_a_leader_that_had_just_moved() -> None:
    seen = Seen()
    seen.look(UP, UP)
    seen.look(UP, TRYING, after_ms=1_000)
    seen.look(UP, UP, after_ms=900)
    assert not seen.said
    seen.look(UP, TRYING)
    seen.look(UP, TRYING, after_ms=1_000)
    assert "is away since 1 s, so t-1 can't be read" in seen.said[0]


def test_a_broker_that_stays_away_is_given_up_after_broker_timeout() -> None:
    seen = Seen()
    seen.look(UP, UP)
    seen.look(UP, TRYING)
    with pytest.raises(Unavailable, match=r"one:9092,two:9092 is away since 10 s.*broker_timeout \(10 s\)"):
        seen.look(UP, TRYING, after_ms=10_000)


@pytest.mark.parametrize(
    "reason",
    [
        "sasl_ssl://one:9092/bootstrap: SASL authentication error: Authentication failed",
        "ssl://one:9092/bootstrap: SSL handshake failed: certificate verify failed: broker certificate could "
        "not be verified, verify that ssl.ca.location is correctly configured",
    ],
)
def test_a_refusal_is_fatal_at_once(reason: str) -> None:
    with pytest.raises(Fatal, match="refuse each other"):
        Seen().connection.on_error(KafkaError(KafkaError._AUTHENTICATION, reason))


def test_a_broker_that_dies_within_a_handshake_refuses_nobody() -> None:
    seen = Seen()
    reason = (
        "ssl://one:9092/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT listener?"
    )
    seen.connection.on_error(KafkaError(KafkaError._SSL, reason))
    assert not seen.said


STILL = {"desired": True, "fetch_state": "none"}


def test_a_partition_that_is_not_read_for_ten_seconds_is_told_once_in_each() -> None:
    seen = Seen()
    told = []
    for _ in range(25):
        seen.look(UP, UP, after_ms=1_000, **STILL)
        told.append(seen.connection.stopped())
    assert [second for second, keys in enumerate(told) if keys] == [10, 20]
    assert told[10] == told[20] == [("t", 0)]


@pytest.mark.parametrize(
    "between",
    [
        {"desired": True, "fetch_state": "active"},
        {"desired": False, "fetch_state": "stopped"},  # read directly, or finished
    ],
)
def test_a_partition_that_is_read_or_not_wanted_in_between_is_not_told(between: dict[str, Any]) -> None:
    seen = Seen()
    for second in range(30):
        seen.look(UP, UP, after_ms=1_000, **(between if second % 9 == 8 else STILL))
        assert not seen.connection.stopped()


def test_a_partition_whose_leader_is_away_or_throttles_is_waited_for_and_not_told() -> None:
    away, throttled = Seen(), Seen()
    for _ in range(9):
        away.look(TRYING, UP, after_ms=1_000, **STILL)
        throttled.connection.on_mute(5_000)
        throttled.look(UP, UP, after_ms=1_000, **STILL)
    for seen in (away, throttled):
        seen.clock.advance(10_000)
        assert not seen.connection.stopped()
