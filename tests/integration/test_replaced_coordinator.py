"""A broker that was frozen and wakes up takes itself for the coordinator that it was: what it answers for a
ledger is old, and who believes it writes output again. On a real cluster of three."""

from __future__ import annotations

import socket
import struct
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from tenacity import retry, retry_if_exception_type, retry_if_not_result, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.embedded.cluster import EmbeddedCluster
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.runtime.errors import Indeterminate, Retryable

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "ledgers"
AGAIN: Any = {"stop": stop_after_delay(60), "wait": wait_fixed(0.05), "reraise": True}
patiently = retry(retry=retry_if_exception_type((Retryable, Indeterminate)), **AGAIN)


@pytest.fixture
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_version: str, jar_cache: object
) -> Iterator[EmbeddedCluster]:
    folder = tmp_path_factory.mktemp("three")
    with EmbeddedCluster(folder, version=kafka_version, jar_cache=jar_cache) as three:  # type: ignore[arg-type]
        yield three


ROUNDS = 12


def test_a_ledger_is_not_read_from_a_coordinator_that_was_replaced(cluster: EmbeddedCluster) -> None:
    """In each round two clients have asked the coordinator before it froze, and ask it again while it wakes
    up. Whoever asks it for any value gets an old one in about every second round."""
    ledger = LedgerKey("job.out.beef.0", TOPIC)
    is_fooled = 0
    for value in range(1, 2 * ROUNDS, 2):
        with client_of(cluster) as careful, client_of(cluster) as careless, client_of(cluster) as writer:
            patiently(careful.ensure_ledger_topic)(TOPIC)
            patiently(commit)(writer, ledger, value)
            assert patiently(careful.newest_ledger)(ledger) == entry(value)
            assert patiently(careless.read_ledger)(ledger) == entry(value)
            old = coordinator(ledger, cluster, cluster.nodes[0])
            cluster.freeze(old)
            wait_until_another_is(old, ledger, cluster)
            patiently(commit)(writer, ledger, value + 1)
            with ThreadPoolExecutor(2) as at_once:
                newest = at_once.submit(patiently(careful.newest_ledger), ledger)
                any_value = at_once.submit(patiently(careless.read_ledger), ledger)
                cluster.thaw(old)
            assert newest.result() == entry(value + 1)
            is_fooled += any_value.result() == entry(value)
        if is_fooled == 2:
            return
    raise AssertionError(f"an old answer came {is_fooled} times in {ROUNDS} rounds: that says nothing")


def client_of(cluster: EmbeddedCluster | EmbeddedKafka) -> closing[LibrdkafkaClient]:
    return closing(LibrdkafkaClient(KafkaOptions(cluster.bootstrap_servers), ProducerSettings()))


def entry(value: int) -> LedgerEntry:
    return LedgerEntry(value, "{}")


def commit(client: LibrdkafkaClient, ledger: LedgerKey, value: int) -> None:
    producer = client.open_producer(ledger)
    producer.begin()
    producer.send_ledger(entry(value))
    producer.commit()
    producer.discard()


@retry(retry=retry_if_exception_type(OSError), **AGAIN)
def coordinator(ledger: LedgerKey, cluster: EmbeddedCluster, asked: int) -> int:
    """The node that coordinates the ledger's group, as the one that is asked says."""
    with socket.create_connection(("127.0.0.1", cluster.port(asked)), timeout=5) as connection:
        group = ledger.transactional_id.encode()
        request = struct.pack(">hhih", 10, 0, 1, -1) + struct.pack(">h", len(group)) + group
        connection.sendall(struct.pack(">i", len(request)) + request)
        code, node = struct.unpack_from(">hi", connection.recv(4096), 8)
    if code:
        raise ConnectionError(f"error {code}")
    return int(node)


def wait_until_another_is(old: int, ledger: LedgerKey, cluster: EmbeddedCluster) -> None:
    asked = next(node for node in cluster.nodes if node != old)

    @retry(retry=retry_if_not_result(bool), **AGAIN)
    def moved() -> bool:
        return coordinator(ledger, cluster, asked) != old

    moved()


def test_a_ledger_topic_of_one_partition_gets_its_second(broker: EmbeddedKafka) -> None:
    topic = f"ledgers-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1)
    ledger = LedgerKey(f"job.{topic}", topic)
    with client_of(broker) as client, client_of(broker) as other:
        assert patiently(other.newest_ledger)(ledger) is None, "as earlier versions read it"
        patiently(client.ensure_ledger_topic)(topic)
        patiently(other.ensure_ledger_topic)(topic)
        assert client.describe_topics([topic])[topic].partitions == 2
        patiently(commit)(client, ledger, 7)
        assert patiently(other.newest_ledger)(ledger) == patiently(client.newest_ledger)(ledger) == entry(7)
