"""One of three brokers is dead: nothing storms at its port, and no attempt fails.

A cluster of three real brokers, one of which is killed by its process id. Who tries to reach it is counted
by a listener that takes its port, hangs up on each connection at once, and so looks like a port where
nobody speaks Kafka; refused connections look the same to a client, but can't be counted from outside.
"""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from onceflow.cli.audit_topics import TopicReader
from onceflow.connectors.kafka.client import TopicDescription
from onceflow.connectors.kafka.embedded.cluster import EmbeddedCluster
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.source.topic_watch import TopicWatch
from onceflow.connectors.kafka.transactions.hanging import TransactionDoctor
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.waiting import WaitForSystem
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import DataLossError
from onceflow.structured_streaming.kept_commits import described

pytestmark = pytest.mark.kafka

ONCEFLOW = str(Path(sys.executable).with_name("onceflow"))

TENS = 60
"""Connections a second of all clients of one process together. A storm has 20,000."""


class DeadPort:
    """Listens where a broker was, hangs up on everybody, and counts them."""

    def __init__(self, port: int) -> None:
        self.connects = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self._since = time.monotonic()
        self._thread = threading.Thread(target=self._hang_up, daemon=True)
        self._thread.start()

    def _hang_up(self) -> None:
        with suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self.connects += 1
                accepted.close()

    @property
    def per_second(self) -> float:
        return self.connects / (time.monotonic() - self._since)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_version: str, jar_cache: Any
) -> Iterator[EmbeddedCluster]:
    """Three nodes. Each test that kills one brings it back."""
    folder = tmp_path_factory.mktemp("cluster")
    with EmbeddedCluster(folder, version=kafka_version, jar_cache=jar_cache) as three:
        yield three


@pytest.fixture
def kill_node(cluster: EmbeddedCluster) -> Iterator[Callable[[int], DeadPort]]:
    """`kill_node(2)` kills it and counts who comes; afterwards it is back."""
    dead: dict[int, DeadPort] = {}

    def kill(node: int) -> DeadPort:
        cluster.kill(node)
        dead[node] = DeadPort(cluster.port(node))
        return dead[node]

    yield kill
    for node, port in dead.items():
        port.close()
        cluster.start_node(node)


def connects_per_second(cluster: EmbeddedCluster, topic: str, is_sparse: bool) -> float:
    """The client's controller dies, and the client is asked something that only a controller may answer."""
    connects: dict[str, int] = {}

    def note(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"]
        connects.update({name: broker["connects"] for name, broker in brokers.items()})

    settings = KafkaOptions(cluster.bootstrap_servers).admin(
        {"stats_cb": note, "statistics.interval.ms": 100, "log_level": 0, "error_cb": lambda _: None}
    )
    admin = AdminClient({**settings, "enable.sparse.connections": is_sparse})
    controller = admin.list_topics(topic, timeout=120).controller_id
    cluster.kill(controller)  # nobody takes its port: connections are refused
    began = time.monotonic()
    try:
        answer = admin.describe_topics(TopicCollection([topic]), request_timeout=5)[topic]
        while not answer.done() or time.monotonic() - began < 3:
            admin.poll(0.1)
    finally:
        took_s = time.monotonic() - began
        cluster.start_node(controller)
    with suppress(KafkaException):
        assert answer.result().name == topic
    assert sum(connects.values()) > 0
    return sum(connects.values()) / took_s


def test_an_admin_request_for_a_dead_controller_connects_by_the_backoff(cluster: EmbeddedCluster) -> None:
    assert connects_per_second(cluster, cluster.create_topic("asked-by-our-settings", 3), False) < 20


@pytest.mark.soak
def test_with_librdkafkas_own_setting_it_storms(cluster: EmbeddedCluster) -> None:
    """What is measured above is the right thing. Now and then another broker answers before the client asks
    the dead one; then it is looked at once more."""
    topic = cluster.create_topic("asked-by-their-settings", 3)
    assert any(connects_per_second(cluster, topic, True) > 20 for _ in range(5))


def test_a_look_up_that_meets_a_dead_broker_is_answered_by_another(
    cluster: EmbeddedCluster, kill_node: Callable[[int], DeadPort]
) -> None:
    """Connected to all three, then one of them dies: each question is answered all the same, by whoever is
    there, also those that only the leader may answer."""
    topic = cluster.create_topic("looked-up", 6)
    metadata = ClusterMetadata(KafkaOptions(cluster.bootstrap_servers), SystemClock(), 60_000)
    keys = metadata.describe([topic])[topic].keys
    assert metadata.offsets(keys, "latest", "read_committed") == dict.fromkeys(keys, 0)
    port = kill_node(3)
    for _ in range(3):
        assert metadata.describe([topic])[topic].keys == keys
        assert metadata.offsets(keys, "latest", "read_committed") == dict.fromkeys(keys, 0)
        assert topic in metadata.topic_names()
        assert metadata.committed("nobody", keys) == {}
    metadata.close()
    assert port.per_second < TENS


def test_sinks_and_watches_learn_of_a_new_controller_though_the_one_they_knew_is_dead(
    cluster: EmbeddedCluster, kill_node: Callable[[int], DeadPort]
) -> None:
    """A client takes any broker for the controller, which is asked of a topic's configuration and its id. Of
    eight clients some took the one that dies, and librdkafka alone would ask it for five minutes."""
    topic, deleted = cluster.create_topic("looked-up-by-sinks", 6), cluster.create_topic("watched")
    options = KafkaOptions(cluster.bootstrap_servers)
    clients = [LibrdkafkaClient(options, ProducerSettings()) for _ in range(8)]
    known = [client.describe_topics([topic]) for client in clients]
    watches = [TopicWatch(options, SystemClock(), 100) for _ in range(8)]
    for watch in watches:
        watch.add({deleted: id_of(options, deleted)})
        watch.confirm(deleted, 30)
    port = kill_node(1)
    with ThreadPoolExecutor(len(clients)) as each:
        assert list(each.map(lambda client: answered(client, topic), clients)) == known
    admin = AdminClient(options.admin({"logger": logging.getLogger(__name__)}))
    admin.delete_topics([deleted])[deleted].result(30)
    with ThreadPoolExecutor(len(watches)) as each:
        assert all(each.map(notices, watches))
    for client in clients:
        client.close()
    assert port.per_second < TENS, port.connects


def id_of(options: KafkaOptions, topic: str) -> str:
    with closing(ClusterMetadata(options, SystemClock(), 60_000)) as metadata:
        return metadata.describe([topic])[topic].topic_id


def notices(watch: TopicWatch) -> bool:
    """Whether it says within a minute that its topic is gone."""
    pause = threading.Event()
    with closing(watch), suppress(DataLossError):
        for _ in range(1_200):
            watch.check()
            pause.wait(0.05)
        return False
    return True


def answered(client: LibrdkafkaClient, topic: str) -> Mapping[str, TopicDescription]:
    """What it says of the topic, asked again as its sink does, for a minute."""
    clock, over = SystemClock(), threading.Event()
    return described(client, {topic}, WaitForSystem("the sink", clock, lambda _: None, 60_000, over))


def coordinator_of(cluster: EmbeddedCluster, transactional_id: str) -> int:
    """The node that coordinates it: the leader of its partition, which Kafka chooses by Java's hash."""
    number = 0
    for character in transactional_id:
        number = (31 * number + ord(character)) & 0xFFFF_FFFF
    leaders = cluster.leaders("__transaction_state")
    return leaders[(number & 0x7FFF_FFFF) % len(leaders)]


@pytest.mark.soak
def test_commands_that_ask_kafka_are_answered_though_a_broker_has_just_died(
    cluster: EmbeddedCluster, kill_node: Callable[[int], DeadPort]
) -> None:
    """`verify`, `transactions list`, `transactions ledger` and then `transactions abort`, while whoever leads
    and coordinates what they ask for dies: each ends right, and none of them storms."""
    topic = cluster.create_topic("judged", 6)
    timeout = {"transaction.timeout.ms": 600_000}  # the coordinator must not end it on a slow machine
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    open_one = Producer({**servers, **timeout, "transactional.id": "left-open", "log_level": 0})
    open_one.init_transactions(30)
    for number in range(600):
        if number % 300 == 0:
            open_one.begin_transaction()
        open_one.produce(topic, json.dumps({"n": number % 300}), partition=number % 6)
        if number == 299:
            open_one.commit_transaction(30)
    assert open_one.flush(30) == 0
    asked = ("--bootstrap-servers", cluster.bootstrap_servers)
    commands = {
        "verify": ["verify", "--json", "--output", topic, "--sequence", "n", *asked],
        "list": ["transactions", "list", "--json", "--topic", topic, *asked],
        "ledger": ["transactions", "ledger", "left-open", *asked],
        "abort": ["transactions", "abort", "left-open", *asked],
    }
    doctor = TransactionDoctor(KafkaOptions(cluster.bootstrap_servers))
    assert len(doctor.open_transactions()) == 1
    port = kill_node(coordinator_of(cluster, "left-open"))

    def start(name: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([ONCEFLOW, *commands[name]], stdout=pipe, stderr=pipe, text=True)

    def answer(process: subprocess.Popen[str]) -> str:
        out, errors = process.communicate(timeout=240)
        assert (process.returncode, errors.strip()) == (0, "")
        return out

    verify, listing, ledger = map(start, ("verify", "list", "ledger"))
    report = json.loads(answer(verify))
    assert (report["clean"], report["output_records"]) == (True, 300)
    assert {held["transactional_id"] for held in report["open_transactions"]} == {"left-open"}
    (shown,) = json.loads(answer(listing))["open"]
    assert (shown["transactional_id"], shown["state"]) == ("left-open", "Ongoing")
    with doctor:  # it knew the dead one as coordinator
        assert [found.transactional_id for found in doctor.open_transactions()] == ["left-open"]
    assert "never written" in answer(ledger)
    assert "its writer is fenced" in answer(start("abort"))
    with pytest.raises(KafkaException):
        open_one.commit_transaction(30)
    assert port.per_second < TENS, port.connects


def produce(cluster: EmbeddedCluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in numbers:
        producer.produce(topic, str(number), partition=number % 6)
    assert producer.flush(30) == 0


def numbers_in(cluster: EmbeddedCluster, topic: str) -> list[int]:
    with closing(TopicReader(cluster.bootstrap_servers, {})) as reader:
        return sorted(int(value) for raw in reader.chunks(topic, lambda *_: None) for value in raw.values)


@pytest.mark.soak
@pytest.mark.spark
def test_a_streaming_query_goes_on_while_one_of_three_brokers_is_dead_and_leaves_its_port_alone(
    cluster: EmbeddedCluster, kill_node: Callable[[int], DeadPort], spark: Any, tmp_path: Path
) -> None:
    """Structured Streaming's source and sink: planning, tasks, staging's ledger and what is sent."""
    rows, copy = cluster.create_topic("query-in", 6), cluster.create_topic("query-out", 6)
    produce(cluster, rows, range(600))
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    read = spark.readStream.format("onceflow-kafka").options(subscribe=rows, **given)
    read = read.option("startingOffsets", "earliest").load().drop("topic", "partition")
    writing = read.writeStream.format("onceflow-kafka").options(topic=copy, uid=copy, **given)
    query = writing.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        port = kill_node(2)
        for end in range(1_200, 4_200, 600):
            produce(cluster, rows, range(end - 600, end))
            query.processAllAvailable()
        assert port.per_second < TENS, port.connects
        assert query.exception() is None
    finally:
        query.stop()
    assert numbers_in(cluster, copy) == list(range(3_600))


def test_a_job_goes_on_while_one_of_three_brokers_is_dead_and_leaves_its_port_alone(
    cluster: EmbeddedCluster,
    kill_node: Callable[[int], DeadPort],
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    tmp_path: Path,
) -> None:
    """Source, topic watch, discovery, ledger and transactions, in four slots; the broker dies while records
    flow and stays dead for the rest of the job. What is read and written is exact, and no attempt fails."""
    servers = cluster.bootstrap_servers
    cluster.create_topic("dead-in", 6)
    cluster.create_topic("dead-out", 6)
    data, rows = feed(servers, "dead-in", 6), follow(servers, "dead-out")
    arguments = ("--bootstrap-servers", servers, "--input", "dead-in", "--output", "dead-out")
    arguments += ("--discovery", "500 ms")
    job = start_job(tmp_path / "ck", *arguments, parallelism=4, master="threads[4]")
    data.run(2_000)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    before = len(rows.arrivals)
    port = kill_node(2)
    rows.wait_rows(before + 10_000, job)
    seen, since = port.connects, job.mark
    job.wait_event("checkpoint_completed", after=since)
    rows.wait_rows(before + 20_000, job)
    assert port.per_second < TENS, f"{port.connects} connects, {seen} of them at first"
    data.close()
    expected = judge(servers).expected("dead-in")
    rows.wait_rows(len(expected), job)
    job.send(15)
    assert job.wait(120) == 0, job.story()
    assert not job.named("attempt_failed"), job.story()
    assert not job.errors(), "what librdkafka says of its connections is not for the user"
    verdict = judge(servers).verdict(expected, "dead-out")
    assert verdict.is_exact, verdict
