"""Streams over HTTP, counted: slots, jobs and the server are killed, and each event counts once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "stream_counts.py"
SERVER = Path(__file__).parents[1] / "stream_server.py"
EVENTS, STREAMS, USERS = 6_000, 2, 7


def seen(folder: Path) -> Counter[tuple[str, int]]:
    rows: Counter[tuple[str, int]] = Counter()
    for path in folder.glob("out-*.jsonl"):
        rows.update((row["user"], row["n"]) for row in map(json.loads, path.read_text().splitlines()))
    return rows


def has_rows(folder: Path, count: int) -> Callable[[], bool]:
    return lambda: seen(folder).total() >= count


def expected() -> Counter[tuple[str, int]]:
    users = Counter(f"u{n % USERS}" for n in range(EVENTS))
    return Counter((user, n) for user, last in users.items() for n in range(1, STREAMS * last + 1))


@pytest.fixture
def serve() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts the server, each time on the same port; it cuts each connection after 700 events."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, str(SERVER), str(port), str(EVENTS)]))
        return started[-1]

    start.url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
    yield start
    for server in started:
        server.kill()
        server.wait()


def test_kills_of_slots_jobs_and_the_server_leave_each_event_once(
    start_job: Any, engine: Any, tmp_path: Path, serve: Any
) -> None:
    output = tmp_path / "out"
    arguments, settings = (serve.url, str(output)), {"program": PROGRAM, "interval": "100 ms"}
    server = serve()
    job = start_job(tmp_path / "ck", *arguments, master="local[2]", **settings)
    engine.wait_for(has_rows(output, 1_000), job)
    os.kill(job.slots()[1], signal.SIGKILL)
    job.wait_event("restarted")
    engine.wait_for(has_rows(output, 3_000), job)
    server.kill()
    server.wait()
    server = serve()
    engine.wait_for(has_rows(output, 5_000), job)
    job.kill_group()
    job.wait()
    assert seen(output).total() < STREAMS * EVENTS, "killed in the middle"
    again = start_job(tmp_path / "ck", *arguments, master="threads[1]", parallelism=1, **settings)
    engine.wait_for(has_rows(output, STREAMS * EVENTS), again)
    again.send(signal.SIGTERM)
    assert again.wait(120) == 0, again.story()
    assert seen(output) == expected()
