"""What brokers take less of than is written: batches above a topic's limit, bytes above a quota."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerKey
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.runtime.errors import Fatal
from tests.kafka_output import NoPatience, Output
from tests.kafka_quotas import quotas

pytestmark = pytest.mark.kafka

DEADLINE_S = 240
LIMIT = {"max.message.bytes": "20000"}


class Writing:
    """One owner's transactions. Its client has not read the topics' configuration, as one that may not."""

    def __init__(self, servers: str, settings: ProducerSettings, **librdkafka: Any) -> None:
        named = {name.replace("_", "."): value for name, value in librdkafka.items()}
        self.client = LibrdkafkaClient(KafkaOptions(servers, named), settings)
        self.client.ensure_ledger_topic(LEDGER_TOPIC)
        self.client._message_bytes_max = None
        self.patience = NoPatience(DEADLINE_S)
        ledger = LedgerKey(f"sizes-{uuid.uuid4().hex}", LEDGER_TOPIC)
        self.transactions = OwnerTransactions(
            self.client, ledger, Claimant("lineage", 1), self.patience, None
        )
        self.transactions.claim(0)

    def commit(self, checkpoint_id: int, *batches: pa.RecordBatch) -> None:
        self.transactions.commit(checkpoint_id, [Output(checkpoint_id, *batches)])

    def close(self) -> None:
        self.transactions.close()
        self.client.close()


ROUTES = ["direct", "bulk", "one by one"]


@pytest.fixture(params=ROUTES)
def write(broker: EmbeddedKafka, request: pytest.FixtureRequest) -> Iterator[Callable[..., Writing]]:
    """`write(client_id="mine")`: by each of the routes."""
    route = request.param
    opened: list[Writing] = []

    def make(socket_timeout_ms: int = 10_000, **librdkafka: Any) -> Writing:
        settings = ProducerSettings(socket_timeout_ms=socket_timeout_ms, route=route)
        opened.append(Writing(broker.bootstrap_servers, settings, **librdkafka))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def rows(topic: str, first: int, count: int, size: int = 100) -> pa.RecordBatch:
    found = [
        {"topic": topic, "partition": 0, "key": b"k%d" % n, "value": (b"%d " % n).ljust(size, b"x")}
        for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(found, PRODUCE_SCHEMA)


@pytest.fixture
def sees(broker: EmbeddedKafka, engine: Any) -> Callable[[str, int], None]:
    """`sees(topic, count)`: that readers see rows 0 to count, once and in order."""

    def check(topic: str, count: int) -> None:
        deadline, found = time.monotonic() + DEADLINE_S, list[int]()
        while found != list(range(count)):
            assert time.monotonic() < deadline, found
            found = [int(v.split(b" ")[0]) for v in engine.read_topic(broker.bootstrap_servers, topic)]
            assert found == list(range(len(found)))

    return check


def test_small_rows_go_into_a_topic_that_takes_only_small_batches(
    write: Callable[..., Writing], new_topic: Callable[..., str], sees: Callable[[str, int], None]
) -> None:
    topic = new_topic(config=LIMIT)
    writing = write()
    writing.commit(1, rows(topic, 0, 3_000), rows(topic, 3_000, 3_000))
    assert 1 <= len(writing.patience.waits) <= 4, writing.patience.waits
    assert "takes no batch of" in writing.patience.waits[0]
    writing.commit(2, rows(topic, 6_000, 3_000))
    assert len(writing.patience.waits) <= 4, "what was learned is kept"
    sees(topic, 9_000)


def test_a_row_that_is_larger_than_the_topic_takes_is_named_and_fatal(
    write: Callable[..., Writing], new_topic: Callable[..., str], sees: Callable[[str, int], None]
) -> None:
    topic = new_topic(config=LIMIT)
    writing = write()
    writing.commit(1, rows(topic, 0, 10))
    with pytest.raises(Fatal, match=rf"topic '{topic}' is too large: key b'k1[0-9]*', 5\d{{4}} bytes"):
        writing.commit(2, rows(topic, 10, 100), rows(topic, 110, 1, 50_000), rows(topic, 111, 100))
    sees(topic, 10)


@pytest.fixture
def throttled(broker: EmbeddedKafka) -> Iterator[str]:
    """A client id that may write 20 kB a second."""
    client_id = f"throttled-{uuid.uuid4().hex[:8]}"
    with quotas(broker.bootstrap_servers, client_id, producer_byte_rate=20_000.0):
        yield client_id


def test_a_quota_slows_the_output_down_and_aborts_nothing(
    write: Callable[..., Writing],
    new_topic: Callable[..., str],
    throttled: str,
    sees: Callable[[str, int], None],
) -> None:
    """The broker is mute for some seconds, longer than a request may take by itself."""
    topic = new_topic()
    writing = write(socket_timeout_ms=1_000, client_id=throttled)
    writing.commit(1, rows(topic, 0, 2_500), rows(topic, 2_500, 100))
    writing.commit(2, rows(topic, 2_600, 100))
    assert writing.patience.waits == []
    sees(topic, 2_700)
