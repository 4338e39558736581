"""A real single-node Kafka on loopback, for demos and tests: format, start, stop, kill, freeze.

    with EmbeddedKafka(Path("data")) as kafka:
        kafka.create_topic("input", partitions=4)
        ...  # kafka.bootstrap_servers

The data folder holds everything: Kafka's logs, server.properties, broker.json (who runs it) and
broker.log. It may be started again on the same data after any end, kill -9 included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from onceflow.connectors.kafka.embedded.formatting import Formatting, format_folder, random_id
from onceflow.connectors.kafka.embedded.jars import PINNED_VERSION, JarCache
from onceflow.connectors.kafka.embedded.ports import free_port, is_free, port_owner
from onceflow.connectors.kafka.embedded.process import (
    BrokerError,
    BrokerProcess,
    answers,
    attempts,
    class_archive,
    cluster_id_of,
    end_process,
    java_command,
    log_reason,
    require_space,
    require_unused,
)
from onceflow.connectors.kafka.embedded.settings import HOST, LOG4J2, NODE, Ports, server_properties
from onceflow.connectors.kafka.embedded.topics import create_topic
from onceflow.runtime.environment.java import Java, find_java

_READY_TIMEOUT_S = 180.0
_SPACE_NEEDED_BYTES = 256 * 1024 * 1024


class EmbeddedKafka:
    """One broker on one data folder. Not thread-safe; the process outlives this object unless stopped.

    `port` None: free ones are chosen at the first start and kept for the next. `version`: one of the
    pinned ones. `properties`: Kafka's own settings, over ours. `extra_listeners`: further listeners
    beside PLAINTEXT, name to security protocol ({"SASL_SSL": "SASL_SSL"}); `address(name)` tells
    where each listens. `format_arguments` go to kafka-storage format (--add-scram ...).
    """

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        version: str = PINNED_VERSION,
        properties: Mapping[str, str] | None = None,
        log_file: Path | None = None,
        *,
        extra_listeners: Mapping[str, str] | None = None,
        format_arguments: tuple[str, ...] = (),
        jar_cache: JarCache | None = None,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self.version = version
        self.log_file = log_file or self.data_dir / "broker.log"
        self._properties = dict(properties or {})
        self._protocols = {"PLAINTEXT": "PLAINTEXT", **(extra_listeners or {})}
        self._format_arguments = format_arguments
        self._jar_cache = jar_cache or JarCache()
        self._wanted_port = port
        self._ports: Ports | None = None
        self._process: psutil.Popen | None = None
        self._archive: tuple[Path, Path] | None = None

    # --- Where it is ---

    @property
    def bootstrap_servers(self) -> str:
        """The PLAINTEXT listener's address, known after the first start and the same after a restart."""
        return self.address("PLAINTEXT")

    def address(self, listener: str) -> str:
        if self._ports is None:
            raise BrokerError(f"the broker on {self.data_dir} has not been started yet: call start()")
        return f"{HOST}:{self._ports.listeners[listener]}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerError(f"the broker on {self.data_dir} is not running: call start()")
        return int(self._process.pid)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    # --- Its life ---

    def start(self) -> Self:
        """Start and wait until it answers a real request; formats the folder the first time.

        BrokerError with the reason if it can't: a port or the folder in use, a full disk, a Kafka
        that ends. Nothing is left running then.
        """
        if self.is_running:
            raise BrokerError(f"the broker on {self.data_dir} is already running (process {self.pid})")
        java = find_java()
        class_path = os.pathsep.join(map(str, self._jar_cache.jars(self.version, java)))
        self.data_dir.mkdir(parents=True, exist_ok=True)
        require_unused(self.data_dir, self._log_dir)
        require_space(self.data_dir, _SPACE_NEEDED_BYTES)
        ports = self._choose_ports()
        self._write_settings(ports)
        if not (self._log_dir / "meta.properties").exists():
            self._format(java, class_path)
        try:
            self._launch(java, class_path, ports)
            self._wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """End it cleanly (SIGTERM); kills it if it takes longer than 30 s. No-op if not running."""
        if self._process is not None and self.is_running:
            end_process(self._process)
            self._keep_archive()
        self._forget()

    def kill(self) -> None:
        """SIGKILL, as a crash would end it. No-op if not running."""
        if self._process is not None and self.is_running:
            self._process.kill()
        self._forget()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, which is worse than a dead broker."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- Topics ---

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        """Create the topic and wait until the broker leads its partitions; returns its name."""
        return create_topic(self.bootstrap_servers, topic, partitions, config or {})

    # --- How it is done ---

    @property
    def _log_dir(self) -> Path:
        return self.data_dir / "logs"

    def _choose_ports(self) -> Ports:
        """The ports of the last start, if they are known; a taken one is an error that names its owner."""
        known = self._ports
        if known is None:
            plaintext = self._wanted_port or free_port()
            others = {name: free_port() for name in self._protocols if name != "PLAINTEXT"}
            known = Ports(free_port(), {"PLAINTEXT": plaintext, **others})
        for port in known.all():
            if not is_free(port):
                raise BrokerError(
                    f"port {port} is in use{port_owner(port)}: stop that process, or choose another port"
                )
        self._ports = known
        return known

    def _write_settings(self, ports: Ports) -> None:
        text = server_properties(self._log_dir, ports, self._protocols, self._properties)
        settings = self.data_dir / "server.properties"
        settings.touch(mode=0o600)  # it may hold passwords of the listeners
        settings.write_text(text, encoding="utf-8")
        (self.data_dir / "log4j2.properties").write_text(LOG4J2, encoding="utf-8")

    def _format(self, java: Java, class_path: str) -> None:
        command = java_command(java, class_path, self.data_dir)
        if (archive := class_archive(self._jar_cache, self.version, java)).exists():
            command[1:1] = [f"-XX:SharedArchiveFile={archive}"]  # half of its classes are the broker's too
        formatting = Formatting(
            self.version,
            random_id(),
            NODE,
            command,
            self.data_dir / "server.properties",
            bool(self._properties),
            self._format_arguments,
        )
        format_folder(self._log_dir, self._jar_cache, formatting)

    def _launch(self, java: Java, class_path: str, ports: Ports) -> None:
        command = java_command(java, class_path, self.data_dir)
        command[1:1] = self._archive_flags(java)
        command += ["kafka.Kafka", str(self.data_dir / "server.properties")]
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = psutil.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        started_at = self._process.create_time()
        BrokerProcess(self._process.pid, started_at, self.version, dict(ports.listeners)).save(self.data_dir)

    def _archive_flags(self, java: Java) -> list[str]:
        """Classes ready to map: written when a broker first ends cleanly, it cuts a start from 2 s to 1."""
        archive = class_archive(self._jar_cache, self.version, java)
        if archive.exists():
            self._archive = None
            return [f"-XX:SharedArchiveFile={archive}"]
        part = archive.with_suffix(f".{uuid.uuid4().hex}.part")
        self._archive = (part, archive)
        return [f"-XX:ArchiveClassesAtExit={part}"]

    def _keep_archive(self) -> None:
        if self._archive is not None and self._archive[0].exists():
            os.replace(*self._archive)

    def _wait_ready(self) -> None:
        cluster_id = cluster_id_of(self._log_dir)
        for _ in attempts(_READY_TIMEOUT_S):
            if not self.is_running:
                raise BrokerError(
                    f"Kafka ended while starting: {self._startup_reason()} (see {self.log_file})"
                )
            assert self._ports is not None
            if not is_free(self._ports.listeners["PLAINTEXT"]) and answers(
                self.bootstrap_servers, cluster_id
            ):
                return
        raise BrokerError(f"Kafka did not answer within {_READY_TIMEOUT_S:.0f} s: see {self.log_file}")

    def _startup_reason(self) -> str:
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log_reason(log.read().decode("utf-8", "replace"))

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            self._process = None
            (self.data_dir / "broker.json").unlink(missing_ok=True)
