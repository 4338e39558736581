"""Several real Kafka brokers on loopback that are one cluster, for tests of what a dead one does to clients.

    with EmbeddedCluster(Path("data")) as cluster:
        cluster.create_topic("input", partitions=6)
        cluster.kill(2)  # as a crash would end it; cluster.start_node(2) brings it back

Each node is broker and controller, so that two of three live nodes go on without the third. Topics have
a replica on each node and take writes while one of them is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from onceflow.connectors.kafka.embedded.formatting import Formatting, format_folder, random_id
from onceflow.connectors.kafka.embedded.jars import PINNED_VERSION, JarCache
from onceflow.connectors.kafka.embedded.ports import free_port, is_free
from onceflow.connectors.kafka.embedded.process import (
    BrokerError,
    class_archive,
    java_command,
    leads_all,
    log_reason,
    quiet_admin,
)
from onceflow.connectors.kafka.embedded.settings import HOST, LOG4J2, Member, Ports, server_properties
from onceflow.runtime.environment.java import Java, find_java

_READY_TIMEOUT_S = 120.0


class EmbeddedCluster:
    """Nodes are numbered from 1. Not thread-safe. Ports are chosen once and kept over restarts."""

    def __init__(
        self,
        data_dir: Path,
        nodes: int = 3,
        version: str = PINNED_VERSION,
        properties: Mapping[str, str] | None = None,
        jar_cache: JarCache | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.version = version
        self._jar_cache = jar_cache or JarCache()
        self._ports: dict[int, Ports] = {}
        for node in range(1, nodes + 1):
            taken = {port for ports in self._ports.values() for port in ports.all()}
            self._ports[node] = Ports(_another_port(taken), {"PLAINTEXT": _another_port(taken)})
        self._has_own_settings = bool(properties)
        copies = str(nodes)
        enough = str(max(1, nodes - 1))
        self._properties = {
            "default.replication.factor": copies,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            **(properties or {}),
        }
        self._processes: dict[int, psutil.Popen] = {}

    # --- Where it is ---

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(self._ports)

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, dead ones too, as a user writes them."""
        return ",".join(self.address(node) for node in self._ports)

    def address(self, node: int) -> str:
        return f"{HOST}:{self._ports[node].listeners['PLAINTEXT']}"

    def port(self, node: int) -> int:
        """Where clients reach this node; nobody listens there while it is dead."""
        return self._ports[node].listeners["PLAINTEXT"]

    # --- Its life ---

    def start(self) -> Self:
        """Start all nodes and wait until each serves. BrokerError with the reason if one can't."""
        java = find_java()
        cluster_id = random_id()
        try:
            for node in self._ports:
                self._format(node, cluster_id, java)
            for node in self._ports:
                self._launch(node, java)
            self._wait_ready(self.nodes)
        except BaseException:
            self.stop()
            raise
        return self

    def start_node(self, node: int) -> None:
        """Bring a dead node back and wait until it serves and its copies have caught up."""
        self._launch(node, find_java())
        self._wait_ready(self.nodes if len(self._processes) == len(self._ports) else [node])

    def kill(self, node: int) -> None:
        """SIGKILL by process id, as a crash would end it; waits until the process is gone."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def freeze(self, node: int) -> None:
        """Stop the process where it is: its connections stay open, and nobody answers, until `thaw`."""
        self._processes[node].suspend()

    def thaw(self, node: int) -> None:
        """Let the process go on, and wait until its copies have caught up."""
        self._processes[node].resume()
        self._wait_ready([node])

    def stop(self) -> None:
        """End all nodes at once: nothing of a cluster that is stopped is read again."""
        for node in list(self._processes):
            self.kill(node)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- Topics ---

    def create_topic(self, topic: str, partitions: int = 1) -> str:
        """A topic with a copy on each node, so that its leaders are spread over all of them."""
        admin = quiet_admin(self.bootstrap_servers)
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1)
        admin.create_topics([new])[topic].result(30)
        _wait(
            lambda: len(self.leaders(topic)) == partitions and leads_all(admin, topic, partitions),
            f"the partitions of {topic} got no leader",
        )
        return topic

    def leaders(self, topic: str) -> dict[int, int]:
        """The node that leads each partition, as a live node tells it. Dead ones are left out."""
        live = ",".join(self.address(node) for node in self._processes)
        found = quiet_admin(live).list_topics(topic, timeout=10).topics[topic].partitions
        return {number: p.leader for number, p in found.items() if p.leader in self._processes}

    # --- How it is done ---

    def _folder(self, node: int) -> Path:
        return self.data_dir / f"node-{node}"

    def _command(self, node: int, java: Java) -> list[str]:
        class_path = os.pathsep.join(map(str, self._jar_cache.jars(self.version, java)))
        command = java_command(java, class_path, self._folder(node), heap_max="512m")
        archive = class_archive(self._jar_cache, self.version, java)
        if archive.exists():
            command[1:1] = [f"-XX:SharedArchiveFile={archive}"]
        return command

    def _format(self, node: int, cluster_id: str, java: Java) -> None:
        folder = self._folder(node)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        voters = {number: ports.controller for number, ports in self._ports.items()}
        member, ports = Member(node, voters), self._ports[node]
        protocols = {"PLAINTEXT": "PLAINTEXT"}
        text = server_properties(folder / "logs", ports, protocols, self._properties, member)
        (folder / "server.properties").write_text(text, encoding="utf-8")
        (folder / "log4j2.properties").write_text(LOG4J2, encoding="utf-8")
        formatting = Formatting(
            self.version,
            cluster_id,
            node,
            self._command(node, java),
            folder / "server.properties",
            self._has_own_settings,
        )
        format_folder(folder / "logs", self._jar_cache, formatting)

    def _launch(self, node: int, java: Java) -> None:
        folder = self._folder(node)
        command = [*self._command(node, java), "kafka.Kafka", str(folder / "server.properties")]
        with (folder / "broker.log").open("ab") as log:
            self._processes[node] = psutil.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _wait_ready(self, nodes: Sequence[int]) -> None:
        """Each of them says that it and all the others are brokers, and that every partition has a leader
        and all of its copies."""

        def is_ready() -> bool:
            for node in nodes:
                if self._processes[node].poll() is not None:
                    log = (self._folder(node) / "broker.log").read_text("utf-8", "replace")
                    raise BrokerError(f"node {node} ended while starting: {log_reason(log)}")
                if is_free(self.port(node)):
                    return False
            return all(self._knows_all(node) for node in nodes)

        _wait(is_ready, f"the nodes {nodes} did not answer")

    def _knows_all(self, node: int) -> bool:
        try:
            metadata = quiet_admin(self.address(node)).list_topics(timeout=2)
        except KafkaException:
            return False
        partitions = [p for topic in metadata.topics.values() for p in topic.partitions.values()]
        is_whole = all(p.leader >= 0 and len(p.isrs) >= len(self._processes) for p in partitions)
        return len(metadata.brokers) >= len(self._processes) and is_whole


def _another_port(taken: set[int]) -> int:
    while (port := free_port()) in taken:
        pass
    taken.add(port)
    return port


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _READY_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BrokerError(f"{otherwise} within {_READY_TIMEOUT_S:.0f} s")
        time.sleep(0.05)
