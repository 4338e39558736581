"""A job that reads two nodes of NiFi is killed: each flow file counts once, on whatever parallelism it goes
on."""

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
from tests.nifi_server import NifiServer

PROGRAM = Path(__file__).parent / "jobs" / "nifi_orders.py"
Nodes = tuple[NifiServer, NifiServer]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with NifiServer(ttl_s=2) as one, NifiServer(ttl_s=2) as other:
        one.create("orders")
        other.create("orders")
        yield one, other


def check_kills(
    kinds: list[str], nodes: Nodes, start_job: Any, engine: Any, folder: Path, master: str
) -> None:
    parallelism = cycle([2, 1, 3])

    def send(n: int) -> int:
        bodies = [json.dumps({"n": each}).encode() for each in range(n, n + 5)]
        return len(nodes[n // 5 % 2].put("orders", bodies))

    def start() -> Any:
        return start_job(
            folder / "ck",
            *(node.url for node in nodes),
            str(folder / "out"),
            program=PROGRAM,
            master=master,
            interval="200 ms",
            parallelism=next(parallelism),
            options=["--slot-timeout", "3 s", "--restart", "fixed:200 ms"],
        )

    producer = Producer(lambda: nullcontext(send), pause_s=0.02)

    def is_done() -> bool:
        return sum(node.waiting("orders") for node in nodes) == 0

    found = run_with_kills(kinds, start, producer, engine, folder / "out", is_done=is_done)
    assert found == Counter(range(producer.sent))
    again = sum(node.deliveries for node in nodes) - producer.sent
    print(f"{len(kinds)} kills, {producer.sent} flow files, {again} sent again: 0 lost, 0 doubled")
    assert again > 0, "something was sent again"
    assert is_done(), "all is confirmed"


def test_each_flow_file_counts_once_whatever_is_killed(
    nodes: Nodes, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    """On threads a slot dies with its driver; the soak below kills those of Spark."""
    check_kills([DRIVER] * 3, nodes, start_job, engine, tmp_path, "threads[3]")


@pytest.mark.soak
@pytest.mark.spark
def test_twenty_four_kills(nodes: Nodes, start_job: Any, engine: Any, tmp_path: Path) -> None:
    check_kills([SLOT, DRIVER, SLOT] * 8, nodes, start_job, engine, tmp_path, "local[3]")
