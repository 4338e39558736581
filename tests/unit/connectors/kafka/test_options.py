"""KafkaOptions: what passes through, what is refused, and that secrets stay secret."""

from __future__ import annotations

import pytest

from onceflow.connectors.kafka.options import REFUSED, KafkaOptions
from onceflow.runtime.errors import OptionError

SECRETS = {"sasl.password": "hunter2", "ssl.key.password": "tr0ub4dor", "ssl.key.pem": "-----BEGIN-----"}


@pytest.mark.parametrize("name", REFUSED)
def test_setting_that_the_guarantee_rests_on_is_refused_with_reason_and_advice(name: str) -> None:
    reason, advice = REFUSED[name]
    with pytest.raises(OptionError) as raised:
        KafkaOptions("localhost:9092", {name: "x"})
    assert all(part in str(raised.value) for part in (name, reason, advice))


def test_secrets_appear_in_no_text() -> None:
    options = KafkaOptions("localhost:9092", {**SECRETS, "sasl.username": "me"})
    said = (
        repr(options) + str(options.shown()) + options.redact(f"login with {SECRETS['sasl.password']} failed")
    )
    assert not [secret for secret in SECRETS.values() if secret in said]
    assert "me" in repr(options)
    assert options.redact("login with hunter2 failed") == "login with *** failed"


def test_one_object_serves_consumer_producer_and_admin() -> None:
    given = {"fetch.min.bytes": 7, "linger.ms": 3, "compression.type": "lz4", "sasl.username": "me"}
    options = KafkaOptions("localhost:9092", given)
    consumer = options.consumer({"group.id": "g"}, {"fetch.min.bytes": 1, "fetch.wait.max.ms": 50})
    assert consumer == {
        "bootstrap.servers": "localhost:9092",
        "fetch.min.bytes": 7,
        "fetch.wait.max.ms": 50,
        "sasl.username": "me",
        "group.id": "g",
    }
    producer = options.producer({"transactional.id": "t"}, {"linger.ms": 5})
    assert (producer["linger.ms"], producer["compression.type"]) == (3, "lz4")
    assert "fetch.min.bytes" not in producer
    assert options.admin() == {
        "bootstrap.servers": "localhost:9092",
        "sasl.username": "me",
        "enable.sparse.connections": False,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
    }


@pytest.mark.parametrize("servers", ["", "  ", None, 9092])
def test_servers_must_be_text(servers: object) -> None:
    with pytest.raises(OptionError, match="bootstrap_servers"):
        KafkaOptions(servers)  # type: ignore[arg-type]
