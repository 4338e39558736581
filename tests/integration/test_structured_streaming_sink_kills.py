"""kill -9 of the Python worker, of the driver and of the broker, in each step of a micro-batch.

One batch after another is hit in its window, and the query started again. The judge is a dump of the topic
under read_committed: each row of the input once, and all rows of a batch from one attempt.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy, Request
from tests.integration.killed_query import WAIT_S, KilledQuery

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

AT_A_GATE = ("before-staging", "mid-stage", "after-staging", "after-commit")
IN_THE_TRANSACTION = {"inside the transaction": Api.PRODUCE, "EndTxn unanswered": Api.END_TXN}
WINDOWS = (*AT_A_GATE[:3], *IN_THE_TRANSACTION, AT_A_GATE[3])
"""In the order in which a batch comes to them."""


class Killed(KilledQuery):
    """A query into a topic, through a proxy."""

    def __init__(self, kafka: EmbeddedKafka, proxy: FaultProxy, folder: Path) -> None:
        self.kafka = kafka
        self.proxy = proxy
        self.topic = kafka.create_topic(f"out-{uuid.uuid4().hex[:12]}", 3)
        super().__init__(folder, {"bootstrap_servers": proxy.address, "topic": self.topic})

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
        self.check([json.loads(value) for value in read_topic(self.kafka.bootstrap_servers, self.topic)])


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
def test_all_are_killed_where_a_commit_is_in_doubt(
    killed: Killed, engine: SimpleNamespace, record_property: Record
) -> None:
    """The step whose outcome nobody knows. All others are in the soak tests below."""
    for whom in ("broker", "driver"):
        killed.kill(whom, "EndTxn unanswered")
    killed.judge(engine.read_topic)
    assert len(killed.kills) == 2
    assert killed.staged() == [], "files of dead attempts and of finished batches are swept"
    told(killed, record_property)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_all_are_killed_in_the_steps_that_differ_for_them(
    killed: Killed, engine: SimpleNamespace, record_property: Record
) -> None:
    """For the worker these are all. Nobody speaks to the broker before a batch is staged, so for it the steps
    until then are one. For the driver they are three, and each of those needs a Spark."""
    of_driver = ("inside the transaction", "EndTxn unanswered", "after-commit")
    for whom, windows in (("worker", WINDOWS), ("broker", WINDOWS[2:]), ("driver", of_driver)):
        for window in windows:
            killed.kill(whom, window)
    killed.judge(engine.read_topic)
    assert len(killed.kills) == 13
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
