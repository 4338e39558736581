"""A query that is killed in a window and started again: its process, its input, and the gates in it.

Who kills what, and who judges, is each test's own: see test_structured_streaming_sink_kills.py.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("spark_sink_child.py")
ROWS = 200
WAIT_S = 240


class KilledQuery:
    """A query of spark_sink_child.py over JSON files, two a batch. `output`: what the child is told of where
    rows go."""

    def __init__(self, folder: Path, output: Mapping[str, Any]) -> None:
        self.folder = folder
        self.files = 0
        self.runs = 0
        self.kills: list[str] = []
        self.gates = folder / "gates"
        self.gates.mkdir()
        (folder / "input").mkdir()
        self._output = output
        self._process: subprocess.Popen[str] | None = None
        self._said: queue.Queue[dict[str, Any]] = queue.Queue()

    # --- The query ---

    def add_batch(self) -> None:
        """Two files; a batch reads both."""
        for _ in range(2):
            first = self.files * ROWS
            rows = [{"id": first + i, "user": f"u{i % 17}"} for i in range(ROWS)]
            temporary = self.folder / "file"
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
            temporary.rename(self.folder / "input" / f"{self.files:05}.json")
            self.files += 1

    def start(self) -> None:
        """The query, in a new Spark if the last was killed."""
        if self._process is None:
            self._launch()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("start\n")
        self._process.stdin.flush()

    def wait_end(self) -> dict[str, Any]:
        """How the query ended."""
        return self._said.get(timeout=WAIT_S)

    def _launch(self) -> None:
        self.runs += 1
        config = {
            **self._output,
            "input": str(self.folder / "input"),
            "checkpoint": str(self.folder / "checkpoint"),
            "gates": str(self.gates),
            "run": self.runs,
        }
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        said, self._said = queue.Queue[dict[str, Any]](), queue.Queue()
        threading.Thread(target=_read, args=(self._process, said), daemon=True).start()
        assert said.get(timeout=WAIT_S)["event"] == "ready", self.story()
        self._said = said

    def kill_driver(self) -> None:
        """The whole driver: its Python, its JVM, and so all its workers."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(120)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.kill_driver()

    def story(self) -> str:
        return (self.folder / "log").read_text()[-3_000:]

    # --- Windows ---

    def set_gate(self, name: str) -> None:
        (self.gates / name).touch()

    def wait_gate(self, name: str) -> int:
        """The process id of who has come to it."""
        reached = self.gates / f"{name}.reached"
        deadline = time.monotonic() + WAIT_S
        while not reached.exists():
            assert time.monotonic() < deadline, f"nobody came to {name}: {self.story()}"
            assert self._said.empty(), f"the query ended before {name}: {self._said.get()}"
            time.sleep(0.02)
        pid = int(reached.read_text())
        reached.unlink()
        return pid

    def open_gate(self, name: str) -> None:
        (self.gates / f"{name}.open").touch()

    # --- The judge ---

    def check(self, rows: list[dict[str, Any]]) -> None:
        """Each row of the input once, and all rows of a batch from one attempt."""
        ids = [row["id"] for row in rows]
        expected = set(range(self.files * ROWS))
        assert len(expected) > 0
        missing, doubled = expected - set(ids), len(ids) - len(set(ids))
        assert (len(missing), doubled, len(set(ids) - expected)) == (0, 0, 0), self.kills
        runs: dict[int, set[int]] = {}
        for row in rows:
            runs.setdefault(row["id"] // (2 * ROWS), set()).add(row["run"])
        assert all(len(found) == 1 for found in runs.values()), f"two attempts in one batch: {runs}"

    def staged(self) -> list[Path]:
        return list((self.folder / "checkpoint/onceflow/staging").rglob("*.arrows"))


def _read(process: subprocess.Popen[str], said: queue.Queue[dict[str, Any]]) -> None:
    assert process.stdout is not None
    with suppress(ValueError):
        for line in process.stdout:
            said.put(json.loads(line))
