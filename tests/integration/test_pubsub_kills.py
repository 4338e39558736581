"""A job that reads subscriptions of Pub/Sub is killed: each message counts once, on whatever parallelism it
goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killed_sources import DRIVER, SLOT, Producer, run_with_kills
from tests.pubsub_server import WHY_NOT, PubSubServer

pytestmark = [pytest.mark.pubsub, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
PROGRAM = Path(__file__).parent / "jobs" / "pubsub_orders.py"
SUBSCRIPTIONS = ("a", "b")


@pytest.fixture
def server() -> Iterator[PubSubServer]:
    with PubSubServer() as server:
        for name in SUBSCRIPTIONS:
            server.create(name)
        yield server


def check_kills(
    kinds: list[str], server: PubSubServer, start_job: Any, engine: Any, folder: Path, master: str
) -> None:
    parallelism = cycle([2, 1, 3])

    def send(n: int) -> int:
        server.publish(
            SUBSCRIPTIONS[n // 5 % 2], [json.dumps({"n": each}).encode() for each in range(n, n + 5)]
        )
        return 5

    def start() -> Any:
        return start_job(
            folder / "ck",
            server.host,
            str(folder / "out"),
            program=PROGRAM,
            master=master,
            interval="200 ms",
            parallelism=next(parallelism),
            options=["--slot-timeout", "3 s", "--restart", "fixed:200 ms"],
        )

    producer = Producer(lambda: nullcontext(send), pause_s=0.04)

    def is_done() -> bool:
        return sum(server.waiting(name) for name in SUBSCRIPTIONS) == 0

    found = run_with_kills(kinds, start, producer, engine, folder / "out", is_done=is_done)
    assert found == Counter(range(producer.sent))
    again = sum(server.deliveries(name) for name in SUBSCRIPTIONS) - producer.sent
    print(f"{len(kinds)} kills, {producer.sent} messages, {again} delivered again: 0 lost, 0 doubled")
    assert again > 0, "something was delivered again"
    assert is_done(), "all is acknowledged"


def test_each_message_counts_once_whatever_is_killed(
    server: PubSubServer, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    """On threads a slot dies with its driver; the soak below kills those of Spark."""
    check_kills([DRIVER] * 3, server, start_job, engine, tmp_path, "threads[3]")


@pytest.mark.soak
@pytest.mark.spark
def test_twenty_four_kills(server: PubSubServer, start_job: Any, engine: Any, tmp_path: Path) -> None:
    check_kills([SLOT, DRIVER, SLOT] * 8, server, start_job, engine, tmp_path, "local[3]")
