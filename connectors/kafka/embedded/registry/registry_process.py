"""A registry as a process that outlives the one that starts it, on a folder beside the broker's data."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil

from onceflow.connectors.kafka.embedded.ports import free_port, is_free, port_owner
from onceflow.connectors.kafka.embedded.process import (
    BrokerError,
    BrokerProcess,
    running_broker,
    stop_broker,
)
from onceflow.connectors.kafka.embedded.settings import HOST

_FOLDER = "schema-registry"
_LISTENER = "HTTP"
_VERSION = "onceflow"
_READY_TIMEOUT_S = 120.0
_MODULE = "onceflow.connectors.kafka.embedded.registry.server"


class EmbeddedRegistry:
    """One registry on one data folder, which may be a broker's. The process outlives this object unless
    stopped; what was registered outlives the process."""

    def __init__(self, data_dir: Path, port: int | None = None) -> None:
        """`port` None: a free one, chosen at the first start and kept for the next."""
        self._data_dir = data_dir
        self._folder = data_dir / _FOLDER
        self._port = port

    @property
    def url(self) -> str:
        """Where it answers, known after the first start."""
        if self._port is None:
            raise BrokerError(f"the registry on {self._folder} has not been started yet: call start()")
        return f"http://{HOST}:{self._port}"

    def start(self) -> EmbeddedRegistry:
        """Start it and wait until it answers. BrokerError with the reason if it can't; nothing is left
        running then."""
        if (running := running_registry(self._data_dir)) is not None:
            raise BrokerError(
                f"a schema registry already runs on {self._folder} ({running}): use it, or stop it with "
                f"'onceflow broker stop --data {self._data_dir}'"
            )
        port = self._port = self._port or free_port()
        if not is_free(port):
            raise BrokerError(
                f"port {port} is in use{port_owner(port)}: stop that process, or choose another port"
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        log_file = self._folder / "registry.log"
        with log_file.open("wb") as log:
            process = psutil.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(self._folder), str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            started_at = process.create_time()
            BrokerProcess(process.pid, started_at, _VERSION, {_LISTENER: port}).save(self._folder)
            self._wait_ready(process, log_file)
        except BaseException:
            if process.poll() is None:
                process.kill()
                process.wait()
            raise
        return self

    def stop(self) -> None:
        """End it. No-op if it does not run."""
        stop_registry(self._data_dir)

    def __enter__(self) -> EmbeddedRegistry:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_ready(self, process: psutil.Popen, log_file: Path) -> None:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not _answers(self.url):
            if process.poll() is not None:
                said = log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise BrokerError(f"the schema registry ended while starting: {(said or ['no word'])[-1]}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the schema registry did not answer within {_READY_TIMEOUT_S:.0f} s: see {log_file}"
                )
            time.sleep(0.02)


def running_registry(data_dir: Path) -> str | None:
    """The URL of the registry that runs on this data folder now, started by whatever process."""
    running = running_broker(data_dir / _FOLDER)
    return None if running is None else f"http://{HOST}:{running.listeners[_LISTENER]}"


def stop_registry(data_dir: Path) -> str | None:
    """End whatever registry runs on the folder. Returns where it was; None if none did."""
    url = running_registry(data_dir)
    stop_broker(data_dir / _FOLDER)
    return url


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/subjects", timeout=2):
            return True
    except (OSError, urllib.error.URLError):
        return False
