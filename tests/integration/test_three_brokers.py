"""A cluster of three real brokers that has a bad day while a job runs: what readers of committed output
see is exact, whatever broker dies, freezes, restarts or gives its partitions away."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition

from onceflow.connectors.kafka.embedded.cluster import EmbeddedCluster
from tests.kafka_quotas import quotas

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1_500)]

FROZEN_S = 12.0
"""Longer than a broker's session lasts, so that its partitions get other leaders while it is frozen."""
DOWN_S = 2.0
PARTITIONS = 6
CLIENT_ID = "job"
THROTTLED_S = 150.0
"""Longer than a transaction may take, which is two minutes."""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, kafka_version: str, jar_cache: Any
) -> Iterator[EmbeddedCluster]:
    folder = tmp_path_factory.mktemp("three")
    with EmbeddedCluster(folder, version=kafka_version, jar_cache=jar_cache) as three:
        yield three


class BadDay:
    """What happens to the cluster. After each event all three nodes are back and whole."""

    def __init__(
        self, cluster: EmbeddedCluster, topics: tuple[str, str], wait_some: Callable[[float], None]
    ) -> None:
        self._cluster = cluster
        self._input, self._output = topics
        self._wait_some = wait_some

    def leader_of_output_dies(self) -> None:
        self._dies(self._cluster.leaders(self._output)[0])

    def leader_of_input_dies(self) -> None:
        self._dies(self._cluster.leaders(self._input)[0])

    def coordinator_dies(self) -> None:
        self._dies(self._coordinator())

    def coordinator_freezes(self) -> None:
        self._freezes(self._coordinator())

    def leader_freezes(self) -> None:
        self._freezes(self._cluster.leaders(self._output)[0])

    def partitions_move(self) -> None:
        """Each partition of both topics gets another preferred leader, and that one leads."""
        with closing(self._admin()) as admin:
            moved = {}
            for topic in (self._input, self._output):
                for partition, leader in self._cluster.leaders(topic).items():
                    others = [node for node in self._cluster.nodes if node != leader]
                    moved[TopicPartition(topic, partition)] = [*others, leader]
            refused = admin.alter_partition_reassignments(moved)
            assert not any(refused.values()), refused
            while not self._are_led_by_the_first_of(moved):  # a busy cluster may need to be asked again
                admin.elect_leaders(0, {topic: [*range(PARTITIONS)] for topic in (self._input, self._output)})
                self._wait_some(0.1)

    def _are_led_by_the_first_of(self, replicas: dict[TopicPartition, list[int]]) -> bool:
        leaders = {topic: self._cluster.leaders(topic) for topic in (self._input, self._output)}
        return all(leaders[where.topic].get(where.partition) == nodes[0] for where, nodes in replicas.items())

    def rolling_restart(self) -> None:
        for node in self._cluster.nodes:
            self._cluster.kill(node)
            self._cluster.start_node(node)

    def output_is_throttled(self) -> None:
        """The job may write next to nothing: answers mute brokers for longer than a transaction may take."""
        with quotas(self._cluster.bootstrap_servers, CLIENT_ID, producer_byte_rate=100.0):
            self._wait_some(THROTTLED_S)

    def input_is_throttled(self) -> None:
        with quotas(self._cluster.bootstrap_servers, CLIENT_ID, consumer_byte_rate=100.0):
            self._wait_some(THROTTLED_S)

    def _dies(self, node: int) -> None:
        self._cluster.kill(node)
        self._wait_some(DOWN_S)
        self._cluster.start_node(node)

    def _freezes(self, node: int) -> None:
        self._cluster.freeze(node)
        self._wait_some(FROZEN_S)
        self._cluster.thaw(node)

    def _coordinator(self) -> int:
        """A node that coordinates one of the job's transactions."""
        with closing(self._admin()) as admin:
            found: dict[int, list[Any]] = admin.list_transactions()
        return next(node for node, transactions in found.items() if transactions)

    def _admin(self) -> Any:
        return KafkaAdminClient(bootstrap_servers=self._cluster.bootstrap_servers.split(","))


SIX = (
    BadDay.leader_of_output_dies,
    BadDay.coordinator_dies,
    BadDay.partitions_move,
    BadDay.coordinator_freezes,
    BadDay.leader_of_input_dies,
    BadDay.rolling_restart,
)
SEVEN = (*SIX, BadDay.leader_freezes)


def day_of(events: int, pick: random.Random) -> list[Callable[[BadDay], None]]:
    """Six events, each of another kind that is quick; or more: each kind at least once, quotas no more."""
    if events == len(SIX):
        return [*SIX]
    day = [*SEVEN, BadDay.output_is_throttled, BadDay.input_is_throttled]
    day += [pick.choice(SEVEN) for _ in range(events - len(day))]
    pick.shuffle(day)
    return day


SOAK = [pytest.mark.soak, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize(
    ("events", "written"),
    [
        (len(SIX), "staged"),
        pytest.param(30, "staged", marks=SOAK),
        pytest.param(len(SIX), "in two phases", marks=SOAK),
        pytest.param(30, "in two phases", marks=SOAK),
    ],
)
def test_output_is_exact_on_a_bad_day_of_three_brokers(
    events: int,
    written: str,
    cluster: EmbeddedCluster,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    tmp_path: Any,
) -> None:
    """Six events; or thirty, drawn by the seed in ONCEFLOW_SEED. A sink in two phases has nothing in the
    checkpoint folder: each transaction that a broker takes away costs an attempt."""
    pick = random.Random(int(os.environ.get("ONCEFLOW_SEED", "1")))
    day = day_of(events, pick)
    servers = cluster.bootstrap_servers
    two_phase = written == "in two phases"
    name = f"{events}-{written.replace(' ', '-')}"
    source = cluster.create_topic(f"in-{name}", PARTITIONS)
    output = cluster.create_topic(f"out-{name}", PARTITIONS)
    data, rows = feed(servers, source, PARTITIONS), follow(servers, output)
    arguments = ["--bootstrap-servers", servers, "--input", source, "--output", output]
    arguments += ["--two-phase"] * two_phase
    env = {"TEST_LIBRDKAFKA": json.dumps({"client.id": CLIENT_ID})}
    # The soak has the load. Six events on two cores: three brokers copy each record, and each checkpoint's.
    rate, interval = (5_000, "200 ms") if events > len(SIX) else (500, "500 ms")
    where = {"parallelism": 2, "master": "threads[2]", "interval": interval, "env": env}
    job = start_job(tmp_path / "ck", *arguments, **where)
    data.run(rate)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    trouble = BadDay(cluster, (source, output), rows.wait_some)
    for event in day:
        began_s = time.monotonic()
        rows.wait_some(pick.uniform(0, 0.5))  # anywhere within a checkpoint
        event(trouble)
        rows.wait_rows(len(rows.arrivals) + rate // 5, job, timeout=240)
        print(f"{event.__name__}: goes on after {time.monotonic() - began_s:.0f} s", flush=True)
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job, timeout=480)
    job.send(15)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    failed = len(job.named("attempt_failed"))
    kinds = Counter(event.__name__ for event in day)
    print(f"{dict(kinds)}, {failed} attempts failed, {len(expected)} windows: {verdict}")
    assert verdict.is_exact, verdict
    if BadDay.output_is_throttled in day:
        assert any("throttles this client for" in line for line in job.lines), "and not that Kafka is away"
