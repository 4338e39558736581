"""The direct routes where brokers want TLS, a password or a token: rows come and go as in the clear."""

from __future__ import annotations

import base64
import json
import logging
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from benchmarks.secured import broker_options, client_settings, write_certificate
from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.direct import DirectRoute
from onceflow.connectors.kafka.transactions.hanging import TransactionDoctor
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ReaderContext
from tests.integration.test_direct_produce import PARTITIONS, Output, Sink, numbered

pytestmark = pytest.mark.kafka

DEADLINE_S = 240
RECORDS = 120_000
"""More than librdkafka keeps by itself: the source goes to the brokers."""
REAUTHENTICATION_MS = 2_000
OAUTH = "org.apache.kafka.common.security.oauthbearer"
LISTENERS = [
    ("SSL", None),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "OAUTHBEARER"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    write_certificate(folder)
    return folder


@pytest.fixture(scope="module")
def secured(module_broker: Callable[..., EmbeddedKafka], certificate: Path) -> EmbeddedKafka:
    """A listener of each protocol; on SASL_PLAINTEXT a login is good for two seconds."""
    options = broker_options(certificate)
    module = f'{OAUTH}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    options["properties"] |= {
        "sasl.enabled.mechanisms": options["properties"]["sasl.enabled.mechanisms"] + ",OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": module,
        "listener.name.sasl_plaintext.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        handler = f"listener.name.{listener}.oauthbearer.sasl.server.callback.handler.class"
        validator = f"{OAUTH}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
        options["properties"][handler] = validator
    options["properties"]["listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"] = module
    return module_broker(**options)


def token(config: str) -> tuple[str, float]:
    """What a user's oauth_cb returns: a token that says who this is, and is not signed."""
    assert config == "who=writer"
    now = time.time()
    claims = {"sub": "writer", "iat": now - 60, "exp": now + 600}
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()) for each in ({"alg": "none"}, claims)]
    return ".".join([*(part.decode().rstrip("=") for part in parts), ""]), now + 600


def settings(certificate: Path, protocol: str, mechanism: str | None) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        secret = {"oauth_cb": token, "sasl.oauthbearer.config": "who=writer", "sasl.mechanism": mechanism}
        return {**client_settings(certificate, "SSL"), "security.protocol": protocol, **secret}
    return dict(client_settings(certificate, protocol, mechanism or ""))


@pytest.fixture
def filled(secured: EmbeddedKafka) -> str:
    topic = secured.create_topic(f"secured-{uuid.uuid4().hex}", 1)
    producer = Producer({"bootstrap.servers": secured.bootstrap_servers, "log_level": 0, "linger.ms": 100})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, b"%d" % number, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0
    return topic


@pytest.mark.parametrize(("protocol", "mechanism"), LISTENERS)
def test_a_backlog_is_read_from_the_brokers_directly(
    secured: EmbeddedKafka,
    certificate: Path,
    filled: str,
    protocol: str,
    mechanism: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = KafkaSource(
        bootstrap_servers=secured.address(protocol),
        topics=filled,
        value=Raw(),
        until="latest",
        librdkafka=settings(certificate, protocol, mechanism),
    )
    enumerator = source.open_enumerator("job", SystemClock())
    splits = enumerator.initial_splits()
    enumerator.close()
    reader = source.open_reader(ReaderContext("job", "uid", 0, 1, SystemClock(), with_origin=True))
    read: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        with caplog.at_level(logging.INFO, "onceflow.connectors.kafka"):
            reader.add_splits(splits)
            while len(read) < RECORDS:
                assert time.monotonic() < deadline, len(read)
                if fetch := reader.poll(50, 10_000):
                    read += [int(row["value"]) for row in fetch.records.to_pylist()]
    finally:
        reader.close()
    assert read == list(range(RECORDS))
    assert "1 partitions are read from their brokers directly" in caplog.messages


@pytest.mark.parametrize(("protocol", "mechanism"), LISTENERS)
def test_a_transaction_is_written_to_the_brokers_directly(
    secured: EmbeddedKafka, certificate: Path, protocol: str, mechanism: str | None, engine: Any
) -> None:
    topic = secured.create_topic(f"secured-{uuid.uuid4().hex}", PARTITIONS)
    sink = Sink(secured.address(protocol), librdkafka=settings(certificate, protocol, mechanism))
    try:
        assert isinstance(sink.route, DirectRoute)
        for number in (1, 2):
            sink.transactions.commit(number, [Output(number, numbered(topic, 5_000 * number, 5_000))])
        assert isinstance(sink.route, DirectRoute)
    finally:
        sink.close()
    found = sorted(int(value) for value in engine.read_topic(secured.bootstrap_servers, topic))
    assert found == list(range(5_000, 15_000))


@pytest.mark.parametrize(("protocol", "mechanism"), LISTENERS)
def test_transactions_are_looked_at_on_the_same_listener(
    secured: EmbeddedKafka, certificate: Path, protocol: str, mechanism: str | None
) -> None:
    options = KafkaOptions(secured.address(protocol), settings(certificate, protocol, mechanism))
    with TransactionDoctor(options) as doctor:
        assert doctor.hanging([]) == []
