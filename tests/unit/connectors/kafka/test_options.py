"""KafkaOptions: what passes through, what is refused, and that secrets stay secret."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize(
    ("servers", "wrong"),
    [
        ("http://localhost:9092", "http://localhost:9092"),
        ("localhost:9092,kafka://other:9092", "kafka://other:9092"),
        ("localhost:port", "localhost:port"),
        ("localhost:0", "localhost:0"),
        ("localhost:99999", "localhost:99999"),
        ("localhost:9092/topic", "localhost:9092/topic"),
        ("localhost:9092 other:9092", "localhost:9092 other:9092"),
    ],
)
def test_what_is_no_address_of_a_broker_is_refused_where_it_is_written(servers: str, wrong: str) -> None:
    with pytest.raises(
        OptionError, match=f"{re.escape(repr(wrong))} is not the address of a broker: write HOST:PORT"
    ):
        KafkaOptions(servers)


@pytest.mark.parametrize(
    "servers",
    [
        "localhost",
        "a:1, b:2,",
        "SASL_SSL://broker-0.example.com:9096",
        "[::1]:9092",
        "10.0.0.1:65535",
        "my_host:9092",
    ],
)
def test_what_librdkafka_takes_for_an_address_is_taken(servers: str) -> None:
    assert KafkaOptions(servers).bootstrap_servers == servers


@pytest.mark.parametrize("protocol", ["SASL_SSL", "sasl_plaintext"])
def test_a_login_that_nobody_has_chosen_is_refused(protocol: str) -> None:
    with pytest.raises(OptionError, match=r"without sasl\.mechanism: set it to how the brokers let clients"):
        KafkaOptions("x:1", {"security.protocol": protocol, "sasl.username": "u"})
    for name in ("sasl.mechanism", "sasl.mechanisms"):
        KafkaOptions("x:1", {"security.protocol": protocol, name: "PLAIN"})
