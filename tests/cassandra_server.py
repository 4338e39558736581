"""A real Cassandra for tests."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from cassandra import DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import RoundRobinPolicy

from benchmarks.secured import write_certificate
from tests.java_server import JavaServer

KEYSPACE = "shop"
USER = PASSWORD = "cassandra"
_IN_CONTAINER = PurePosixPath("/onceflow")
"""Where the settings are in a container."""
REACHED = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.ref
java.base/java.lang.reflect java.base/java.math java.base/java.net java.base/java.nio java.base/java.util
java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/jdk.internal.loader
java.base/jdk.internal.math java.base/jdk.internal.misc java.base/jdk.internal.module
java.base/jdk.internal.ref java.base/jdk.internal.reflect java.base/jdk.internal.util
java.base/jdk.internal.util.jar java.base/sun.nio.ch java.management/com.sun.jmx.remote.security
java.management.rmi/com.sun.jmx.remote.internal.rmi java.rmi/sun.rmi.registry java.rmi/sun.rmi.server
java.rmi/sun.rmi.transport java.rmi/sun.rmi.transport.tcp java.sql/java.sql
jdk.management/com.sun.management.internal jdk.management.jfr/jdk.management.jfr
jdk.attach/sun.tools.attach jdk.compiler/com.sun.tools.javac.file
"""
"""Packages of Java 17 that Cassandra reaches into."""


class CassandraServer(JavaServer):
    """One node on a port of loopback, with a user who may do anything, and a keyspace. On the same port it
    speaks TLS, too, with the certificate `ca.pem` in its folder."""

    program = "cassandra-5.0.5"

    def __init__(self, keeps_tables: bool = True) -> None:
        """`keeps_tables`: those that were made since its start are there after a kill. They cost much."""
        self.port, between_nodes = _free_ports(2)
        super().__init__("cassandra", [self.port])
        self._keeps_tables = keeps_tables
        self._cluster: Cluster | None = None
        is_process = self.container is None
        home = str(self.folder) if is_process else "/var/lib/cassandra"
        keystore = self.folder / "keystore.pem" if is_process else _IN_CONTAINER / "keystore.pem"
        settings = {
            "cluster_name": "onceflow",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "listen_address": "127.0.0.1",
            "rpc_address": "127.0.0.1" if is_process else "0.0.0.0",
            "broadcast_rpc_address": "127.0.0.1",
            "storage_port": between_nodes,
            "native_transport_port": self.port if is_process else 9042,
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": f"127.0.0.1:{between_nodes}"}],
                }
            ],
            "authenticator": "PasswordAuthenticator",
            "authorizer": "CassandraAuthorizer",
            "role_manager": "CassandraRoleManager",
            "commitlog_sync": "batch",  # otherwise it loses what it has acknowledged just before it is killed
            "client_encryption_options": {
                "enabled": True,
                "optional": True,  # for who asks for it, on the same port
                "keystore": str(keystore),
                "ssl_context_factory": {
                    "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
                },
            },
            "hints_directory": f"{home}/hints",
            "commitlog_directory": f"{home}/commitlog",
            "cdc_raw_directory": f"{home}/cdc",
            "saved_caches_directory": f"{home}/caches",
            "data_file_directories": [f"{home}/data"],
            "concurrent_reads": 4,
            "concurrent_writes": 4,
            "materialized_views_enabled": False,
        }
        write_certificate(self.folder)
        if self.container is not None:
            self.container.files[str(keystore)] = (self.folder / "keystore.pem").read_text()
            self.container.files[str(_IN_CONTAINER / "cassandra.yaml")] = json.dumps(settings)
        (self.folder / "cassandra.yaml").write_text(json.dumps(settings))  # which is YAML, too
        (self.folder / "logback.xml").write_text(_LOGGING)

    def command(self) -> Sequence[str]:
        folder = self.folder
        return [
            *("-Xms384m", "-Xmx384m", "-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),  # a sixth of its start
            "-Djdk.attach.allowAttachSelf=true",
            *(f"--add-{how}={what}=ALL-UNNAMED" for what in REACHED.split() for how in ("opens", "exports")),
            f"-Dcassandra.config=file://{folder}/cassandra.yaml",
            f"-Dlogback.configurationFile={folder}/logback.xml",
            f"-Dcassandra.storagedir={folder}",
            f"-Djava.io.tmpdir={folder}",
            "-Dcassandra.native.epoll.enabled=false",
            "-Dcassandra.ring_delay_ms=0",
            "-Dcassandra.skip_wait_for_gossip_to_settle=0",
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Dcassandra.auth_bcrypt_gensalt_log2_rounds=4",  # each connection checks a password
            f"-Dcassandra.test.flush_local_schema_changes={str(self._keeps_tables).lower()}",
            "-Dcassandra-foreground=yes",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        with suppress(DriverException, NoHostAvailable):
            self.ask(
                f"CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            return True
        return False

    def kill(self) -> None:
        self._close()
        super().kill()

    def ask(self, statement: str) -> list[Any]:
        """The rows of an answer."""
        if self._cluster is None:
            profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), request_timeout=60)
            self._cluster = Cluster(
                ["127.0.0.1"],
                self.port,
                auth_provider=PlainTextAuthProvider(USER, PASSWORD),
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                protocol_version=4,
                schema_metadata_enabled=False,
            )
            try:
                self._session = self._cluster.connect()
            except Exception:
                self._close()
                raise
        return list(self._session.execute(statement))

    def _close(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.shutdown()


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


_LOGGING = """
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level %date{HH:mm:ss,SSS} %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
