"""What a producer knows of its brokers' quotas, by librdkafka's statistics, and what it makes of it."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import KafkaError

from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.cuts import CutsWatch
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.reasons import Reasons
from onceflow.connectors.kafka.transactions.throttle import Throttle

THROTTLED = "the broker throttles this client for 30 s (a quota, such as producer_byte_rate)"


class Now:
    """A clock in seconds."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
def throttle(now: Now) -> Throttle:
    return Throttle(60.0, now)


def statistics(at_s: float, *throttle_ms: int) -> str:
    brokers = {
        f"b:{n}/{n}": {"disconnects": 0, "req_timeouts": 0, "throttle": {"min": 0, "max": ms, "cnt": 1}}
        for n, ms in enumerate(throttle_ms)
    }
    return json.dumps({"ts": int(at_s * 1e6), "brokers": brokers})


def test_statistics_tell_until_when_the_last_broker_is_mute(now: Now, throttle: Throttle) -> None:
    watch = CutsWatch(throttle)
    watch.on_statistics(statistics(99.0, 0, 0))
    assert throttle.until_s == 0.0
    watch.on_statistics(statistics(100.0, 4_000, 7_500, 0))
    watch.on_statistics(statistics(100.5, 2_000, 0, 0))
    assert throttle.until_s == 107.5
    now.s = 108.0
    assert throttle.waited_s(since_s=100.0) == 0.5, "before that nobody could answer"
    assert throttle.waited_s(since_s=107.8) == pytest.approx(0.2)
    assert watch.since_mark() == 0, "to be throttled is no doubt"


def test_no_broker_is_waited_for_longer_than_the_transaction_may_take(throttle: Throttle) -> None:
    throttle.announce(100.0, 3_600.0)
    assert throttle.until_s == 160.0


def test_what_fails_because_of_a_quota_names_it(now: Now, throttle: Throttle) -> None:
    reasons = Reasons(KafkaOptions("b:1"), throttle)
    late = KafkaError(KafkaError._MSG_TIMED_OUT)
    assert "throttles" not in str(reasons.failure(late, "write", "Topic out"))
    throttle.announce(100.0, 30.0)
    assert THROTTLED in str(reasons.failure(late, "write", "Topic out"))
    assert THROTTLED in str(reasons.no_progress(21.0))
    throttle.forget_past()
    assert throttle.reason, "it lasts"
    now.s = 131.0
    throttle.forget_past()
    assert throttle.reason == ""


@pytest.mark.parametrize("given", [None, 1_000, 60_000])
def test_librdkafka_lets_brokers_be_mute_for_as_long_as_a_transaction_takes(given: int | None) -> None:
    options = KafkaOptions("b:1", {} if given is None else {"socket.timeout.ms": given})
    settings = ProducerSettings(transaction_timeout_ms=120_000)
    assert settings.librdkafka(options, "id", 1_000)["socket.timeout.ms"] == 120_000
    assert settings.request_ms(options) == (given or 10_000), "how slow a commit is before it is doubted"


def test_doubt_comes_before_librdkafka_sends_anything_again() -> None:
    """A commit slower than half of request_ms is doubted: see rule 4."""
    options = KafkaOptions("b:1", {"socket.timeout.ms": 800_000})
    for timeout_ms in (1_000, 900_000):
        settings = ProducerSettings(transaction_timeout_ms=timeout_ms)
        ours = settings.librdkafka(options, "id", 1_000)["socket.timeout.ms"]
        assert settings.request_ms(options) <= int(str(ours)) <= 300_000
