"""A server of pinned jars, as a process of its own. They are fetched once, as those of the embedded Kafka."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, FetchError, JarCache
from onceflow.runtime.environment.java import Java, JavaError, find_java
from tests.server_container import Container, container_of

PINS = Path(__file__).parent / "jars"
DEADLINE_S = 480


def jars_of(program: str) -> tuple[Java, Sequence[Path]]:
    """A Java, and the pinned jars of a program. Raises JavaError or FetchError."""
    pins = json.loads((PINS / f"{program}.json").read_text())
    cache = JarCache(maven_mirror=os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL))
    java = find_java()
    return java, cache.jars_of(program, pins, java)


class JavaServer:
    """A server whose folder is gone when it is closed. What it has answered survives its kill."""

    program = ""
    """Its file in tests/jars, without the ending."""

    def __init__(self, name: str = "", ports: Sequence[int] = ()) -> None:
        """Skips the test if there is no Java, or the jars can't be had, and no container. `name`: of the one
        that may run instead; without it there is none."""
        self.container: Container | None = None
        if name:
            self.container = container_of(name, self.program, ports, self._get_jars)
        elif why := self._get_jars():
            pytest.skip(why)
        self.folder = Path(tempfile.mkdtemp(prefix=f"onceflow-{self.program}-"))
        self._process: subprocess.Popen[bytes] | Container | None = None

    def _get_jars(self) -> str:
        """Why they can't be had here; empty: they are."""
        try:
            self._java, self._jars = jars_of(self.program)
        except (JavaError, FetchError) as error:
            return f"{self.program} can't be had here: {error}"
        return ""

    def command(self) -> Sequence[str]:
        """Options of Java and the main class, with its arguments."""
        raise NotImplementedError

    def answers(self) -> bool:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self.container is not None:
            self.container.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        self._process = self._run_server() if self.container is None else self.container.start()
        self._wait()

    def _run_server(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(map(str, self._jars))
        with open(self.folder / "server.log", "ab") as log:
            return subprocess.Popen(
                [str(self._java.executable), "-cp", path, *self.command()],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )

    @retry(
        retry=retry_if_exception_type(ConnectionError),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    def _wait(self) -> None:
        log = (self.folder / "server.log").read_text() if self.container is None else self.container.log()
        log_end = log[-3_000:]
        assert self._process is not None, "it is started"
        assert self._process.poll() is None, log_end
        if not self.answers():
            raise ConnectionError(log_end)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
