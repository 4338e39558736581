"""A server of pinned jars, as a process of its own. They are fetched once, as those of the embedded Kafka."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from onceflow.connectors.kafka.embedded.jars import MAVEN_CENTRAL, FetchError, JarCache
from onceflow.runtime.environment.java import JavaError, find_java

PINS = Path(__file__).parent / "jars"
DEADLINE_S = 480


class JavaServer:
    """A server whose folder is gone when it is closed. What it has answered survives its kill."""

    program = ""
    """Its file in tests/jars, without the ending."""

    def __init__(self) -> None:
        """Skips the test if there is no Java, or the jars can't be had."""
        pins = json.loads((PINS / f"{self.program}.json").read_text())
        cache = JarCache(maven_mirror=os.environ.get("ONCEFLOW_MAVEN_MIRROR", MAVEN_CENTRAL))
        try:
            self._java = find_java()
            self._jars = cache.jars_of(self.program, pins, self._java)
        except (JavaError, FetchError) as error:
            pytest.skip(f"{self.program} can't be had here: {error}")
        self.folder = Path(tempfile.mkdtemp(prefix=f"onceflow-{self.program}-"))
        self._process: subprocess.Popen[bytes] | None = None

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
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, again where it was killed, and wait until it answers."""
        path = os.pathsep.join(map(str, self._jars))
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [str(self._java.executable), "-cp", path, *self.command()],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,
            )
        self._wait()

    @retry(
        retry=retry_if_exception_type(ConnectionError),
        stop=stop_after_delay(DEADLINE_S),
        wait=wait_fixed(0.1),
        reraise=True,
    )
    def _wait(self) -> None:
        log_end = (self.folder / "server.log").read_text()[-3_000:]
        assert self._process is not None, "it is started"
        assert self._process.poll() is None, log_end
        if not self.answers():
            raise ConnectionError(log_end)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
