"""kill -9 of the Python worker, of the driver and of the broker, in each step of a micro-batch.

One batch after another is hit in its window, and the query started again. The judge is a dump of the topic
under read_committed: each row of the input once, and all rows of a batch from one attempt.
"""

from __future__ import annotations

import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy, Request

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

CHILD = Path(__file__).with_name("spark_sink_child.py")
AT_A_GATE = ("before-staging", "mid-stage", "after-staging", "after-commit")
IN_THE_TRANSACTION = {"inside the transaction": Api.PRODUCE, "EndTxn unanswered": Api.END_TXN}
WINDOWS = (*AT_A_GATE[:3], *IN_THE_TRANSACTION, AT_A_GATE[3])
"""In the order in which a batch comes to them."""

ROWS = 200
WAIT_S = 240


class Killed:
    """A query that is killed and started again: its process, its input, and what should come of it."""

    def __init__(self, kafka: EmbeddedKafka, proxy: FaultProxy, folder: Path) -> None:
        self.kafka = kafka
        self.proxy = proxy
        self.folder = folder
        self.topic = kafka.create_topic(f"out-{uuid.uuid4().hex[:12]}", 3)
        self.files = 0
        self.runs = 0
        self.kills: list[str] = []
        self.gates = folder / "gates"
        self.gates.mkdir()
        (folder / "input").mkdir()
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
            "bootstrap_servers": self.proxy.address,
            "topic": self.topic,
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
        self._process.wait(30)
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

    def reach(self, window: str) -> int:
        """Start the query; returns when it stands in this window, with the id of the process there."""
        if window in AT_A_GATE:
            self.set_gate(window)
            self.start()
            return self.wait_gate(window)
        reached = threading.Event()

        def on_request(request: Request) -> Course:
            if request.api != IN_THE_TRANSACTION[window]:
                return Course.PASS
            reached.set()
            return Course.LOSE_REPLY if request.api == Api.END_TXN else Course.HOLD

        self.set_gate("before-commit")
        self.start()
        pid = self.wait_gate("before-commit")
        self.proxy.on_request = on_request
        self.open_gate("before-commit")
        assert reached.wait(WAIT_S), f"the request never came: {self.story()}"
        return pid

    def calm(self) -> None:
        """The window is over: nothing is held any more."""
        self.proxy.on_request = lambda request: Course.PASS
        for left in self.gates.iterdir():
            left.unlink()

    # --- Kills ---

    def kill(self, whom: str, window: str) -> None:
        """Add a batch, hit it in this window, and let it end."""
        self.add_batch()
        pid = self.reach(window)
        if whom == "worker":
            os.kill(pid, signal.SIGKILL)
            self.calm()
            assert self.wait_end()["event"] == "failed"
        elif whom == "driver":
            self.kill_driver()
            self.calm()
        else:
            self.kafka.kill()
            self.proxy.cut()
            self.calm()
            if window in AT_A_GATE:
                self.open_gate(window)
            self.kafka.start()
            self.wait_end()
            self.calm()
        self.kills.append(f"{whom} | {window}")
        self.start()
        ended = self.wait_end()
        assert ended["event"] == "done", ended

    # --- The judge ---

    def judge(self, read_topic: Callable[[str, str], list[bytes]]) -> None:
        rows = [json.loads(value) for value in read_topic(self.kafka.bootstrap_servers, self.topic)]
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


@pytest.fixture
def killed(own_broker: Callable[..., EmbeddedKafka], tmp_path: Path) -> Iterator[Killed]:
    kafka = own_broker()
    with FaultProxy(kafka.bootstrap_servers) as proxy:
        query = Killed(kafka, proxy, tmp_path)
        yield query
        query.close()


Record = Callable[[str, object], None]


def told(killed: Killed, record_property: Record) -> None:
    """For the table behind the tests (tests/conftest.py)."""
    for kill in sorted(killed.kills, key=lambda kill: WINDOWS.index(kill.split(" | ")[1])):
        record_property("kill", kill)


@pytest.mark.timeout(900)
def test_all_are_killed_in_the_steps_that_differ_for_them(
    killed: Killed, engine: SimpleNamespace, record_property: Record
) -> None:
    """For the worker and the broker these are all, for the driver three, and each of those needs a Spark."""
    of_driver = ("inside the transaction", "EndTxn unanswered", "after-commit")
    for whom, windows in (("worker", WINDOWS), ("broker", WINDOWS), ("driver", of_driver)):
        for window in windows:
            killed.kill(whom, window)
    killed.judge(engine.read_topic)
    assert len(killed.kills) == 15
    assert killed.staged() == [], "files of dead attempts and of finished batches are swept"
    told(killed, record_property)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(6))
def test_all_are_killed_in_every_step_in_any_order(
    killed: Killed, engine: SimpleNamespace, record_property: Record, seed: int
) -> None:
    """108 kills: each kind in each step, once for each seed."""
    kills = [(whom, window) for whom in ("worker", "driver", "broker") for window in WINDOWS]
    random.Random(seed).shuffle(kills)
    for whom, window in kills:
        killed.kill(whom, window)
    killed.judge(engine.read_topic)
    assert len(killed.kills) == 18
    assert killed.staged() == []
    told(killed, record_property)
