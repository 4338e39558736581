"""Every window of the crash table, by SIGKILL of a real process against a real broker.

Method: a tiny job (kafka_sink_child.py) is killed in one window, started again, killed in the next, and
so on; at the end it runs through. The judge is a dump of the topic under read_committed: each row once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy, Request
from tests.integration.forks import Fork, Forks

pytestmark = pytest.mark.kafka

CHILD = Path(__file__).with_name("kafka_sink_child.py")
METHODS = (
    "open_producer",
    "read_ledger",
    "begin",
    "produce",
    "flush",
    "send_ledger",
    "commit",
    "stage",
    "persist",
)


def windows_of(methods: Sequence[str], once: Collection[str]) -> list[dict[str, Any]]:
    """Before and after each call, the first and the second one. `once`: those of which a fair attempt makes
    no second."""
    return [
        {"method": method, "after": after, "nth": nth}
        for method in methods
        for after in (False, True)
        for nth in ((1,) if method in once else (1, 2))
    ]


WINDOWS = windows_of(METHODS, once={"open_producer"})


@dataclass
class Job:
    """The child process, and what it should have written."""

    forks: Forks
    bootstrap_servers: str
    topic: str
    folder: Path
    rows: int = 20
    checkpoints: int = 0
    kills: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def start(self, checkpoints: int, kill: dict[str, Any] | None = None, servers: str = "") -> Fork:
        self.checkpoints = max(self.checkpoints, checkpoints)
        config = {
            "bootstrap_servers": servers or self.bootstrap_servers,
            "topic": self.topic,
            "folder": str(self.folder),
            "rows": self.rows,
            "checkpoints": checkpoints,
            "kill": kill,
            **self.settings,
        }
        with self.said.open("wb") as said:
            return self.forks.start(
                [json.dumps(config)], program=CHILD, stdout=said.fileno(), stderr=said.fileno()
            )

    def run(self, checkpoints: int, kill: dict[str, Any] | None = None) -> None:
        """Run to the end, or to death if it is to be killed."""
        code = self.start(checkpoints, kill).wait(480)
        if kill is None:
            assert code == 0, self.said.read_text()
        else:
            assert code == -signal.SIGKILL, f"not killed at {kill}: {self.said.read_text()}"
            self.kills += 1

    @property
    def said(self) -> Path:
        """What the latest child has said."""
        return self.folder.with_suffix(".said")

    def latest(self) -> int:
        return max((int(path.stem) for path in self.folder.glob("*.json")), default=0)

    def judge(self, *, is_dead: bool = False) -> None:
        """Each row of every durable checkpoint once, and nothing else. Dead: the last may be to come."""
        seen = Counter(row["n"] for row in self.rows_seen())
        expected = set(range(self.latest() * self.rows))
        promised = set(range((self.latest() - 1) * self.rows)) if is_dead else expected
        missing, doubled = promised - set(seen), [n for n, times in seen.items() if times > 1]
        assert (missing, doubled, set(seen) - expected) == (set(), [], set())

    def rows_seen(self) -> list[dict[str, Any]]:
        rows = dump(self.bootstrap_servers, self.topic)
        second = self.settings.get("second_topic")
        if second:
            others = dump(self.bootstrap_servers, second)
            assert all(row["n"] % 2 == 0 for row in rows)
            assert all(row["n"] % 2 == 1 for row in others)
            rows += others
            assert all(row.get("is_deleted", False) == (row["n"] % 5 == 0) for row in rows)
        return rows


def dump(servers: str, topic: str, deadline_s: float = 60) -> list[dict[str, Any]]:
    """All rows that a read_committed reader sees, up to the end of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": f"judge-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    partitions = consumer.list_topics(topic, timeout=240).topics[topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=240)[1] for p in partitions}
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    rows, open_partitions = [], set(partitions)
    deadline = time.monotonic() + deadline_s
    while open_partitions:
        assert time.monotonic() < deadline, f"the dump does not end: {ends}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            open_partitions.discard(message.partition())
        elif message.value() is None:
            rows.append({"n": int(message.key()[1:]), "is_deleted": True})
        else:
            rows.append(json.loads(message.value()))
    consumer.close()
    return rows


def new_job(forks: Forks, servers: str, topic: str, tmp_path: Path) -> Job:
    """Nothing of it has run; `topic` has two partitions."""
    folder = tmp_path / f"l{uuid.uuid4().hex[:12]}"
    folder.mkdir()
    return Job(forks, servers, topic, folder)


def check_windows(job: Job, windows: Sequence[dict[str, Any]]) -> None:
    """Kill it in one window after the other; at the end it runs through."""
    for number, window in enumerate(windows):
        job.run(checkpoints=4 * number + 4, kill=window)
        job.judge(is_dead=True)
    job.run(checkpoints=4 * len(windows) + 2)
    job.judge()
    assert job.kills == len(windows) >= 8


@pytest.fixture
def job(forks: Forks, broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path) -> Job:
    return new_job(forks, broker.bootstrap_servers, new_topic("out", partitions=2), tmp_path)


@pytest.mark.parametrize("part", range(4))
def test_killed_in_every_window_of_the_protocol(job: Job, part: int) -> None:
    check_windows(job, WINDOWS[part::4])


def test_killed_while_it_writes_changes_to_several_topics(job: Job, new_topic: Callable[..., str]) -> None:
    """Rows name their topics, and deletes are records without a value; one window of each call."""
    job.settings["second_topic"] = new_topic("second", partitions=3)
    windows = [window for window in WINDOWS if window["nth"] == 1 and window["after"]]
    check_windows(job, windows)
    assert job.kills == len(METHODS)


@pytest.mark.soak
@pytest.mark.timeout(3_000)
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_kills_in_random_windows(job: Job, seed: int) -> None:
    chance = random.Random(seed)
    job.rows = 200
    for number in range(44):
        window = chance.choice(WINDOWS)
        job.run(checkpoints=job.latest() + 6, kill=window)
        if number % 10 == 0:
            job.judge(is_dead=True)
    job.run(checkpoints=job.latest() + 2)
    job.judge()


class KillAt:
    """Kills the child when a request of its commit passes the proxy, which deals with it as told."""

    def __init__(self, proxy: FaultProxy, api: Api, nth: int, course: Course) -> None:
        self._api = api
        self._nth = nth
        self._course = course
        self._seen = 0
        self._pid: int | None = None
        self.is_reached = threading.Event()
        proxy.on_request = self._on_request

    def wait_and_kill(self, child: Fork) -> None:
        assert self.is_reached.wait(240), "the request never came"
        os.kill(child.pid, signal.SIGKILL)
        child.wait(120)

    def _on_request(self, request: Request) -> Course:
        if request.api != self._api:
            return Course.PASS
        self._seen += 1
        if self._seen != self._nth:
            return Course.PASS
        self.is_reached.set()
        return self._course


@pytest.mark.parametrize(
    "api", [Api.END_TXN, Api.TXN_OFFSET_COMMIT, Api.ADD_PARTITIONS_TO_TXN, Api.INIT_PRODUCER_ID]
)
@pytest.mark.parametrize("late", ["before the next attempt", "after the next attempt", "never"])
def test_killed_while_a_request_is_held_back(job: Job, api: Api, late: str) -> None:
    """EndTxn sent, and it arrives late or never; the same for the other requests of a transaction."""
    with FaultProxy(job.bootstrap_servers) as proxy:
        kill = KillAt(proxy, api, nth=1 if api is Api.INIT_PRODUCER_ID else 2, course=Course.HOLD)
        kill.wait_and_kill(job.start(checkpoints=3, servers=proxy.address))
        if late == "before the next attempt":
            proxy.release()
        job.run(checkpoints=4)
        if late == "after the next attempt":
            proxy.release()
        job.judge()


@pytest.mark.parametrize("api", [Api.END_TXN, Api.TXN_OFFSET_COMMIT])
def test_killed_when_the_reply_is_lost(job: Job, api: Api) -> None:
    with FaultProxy(job.bootstrap_servers) as proxy:
        kill = KillAt(proxy, api, nth=2, course=Course.LOSE_REPLY)
        kill.wait_and_kill(job.start(checkpoints=3, servers=proxy.address))
        job.run(checkpoints=4)
        job.judge()


@pytest.mark.parametrize("api", [Api.END_TXN, Api.TXN_OFFSET_COMMIT])
def test_first_copy_of_a_resent_request_comes_late_and_the_process_is_killed(job: Job, api: Api) -> None:
    """The connection is cut, librdkafka sends again and says OK; the first copy comes in the next
    transaction, and the process dies before that one is committed."""
    released = threading.Event()
    with FaultProxy(job.bootstrap_servers) as proxy:
        seen: Counter[int] = Counter()

        def on_request(request: Request) -> Course:
            seen[request.api] += 1
            if request.api == api and seen[api] == 2:
                return Course.HOLD_AND_CUT
            # The copy is number 3; whatever ends the next transaction waits until the first copy is in.
            if (
                proxy.held
                and request.api == Api.END_TXN
                and seen[Api.END_TXN] >= (4 if api is Api.END_TXN else 3)
            ):
                proxy.release()
                released.set()
                return Course.HOLD
            return Course.PASS

        proxy.on_request = on_request
        child = job.start(checkpoints=6, servers=proxy.address)
        assert released.wait(240)
        os.kill(child.pid, signal.SIGKILL)
        child.wait(120)
        job.run(checkpoints=job.latest() + 2)
        job.judge()
