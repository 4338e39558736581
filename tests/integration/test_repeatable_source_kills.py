"""Jobs that read files, or streams over HTTP, while there come more, are killed again and again: each number
is there once, on whatever parallelism the job goes on.

On threads a slot dies with its driver; slots on Spark are killed in test_files.py and test_http_stream.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killed_sources import DRIVER, SERVER, Producer, run_with_kills
from tests.stream_server import StreamServer

pytestmark = pytest.mark.timeout(900)
PROGRAM = Path(__file__).parent / "jobs" / "copied_numbers.py"
AT_ONCE = 20
ROUNDS = pytest.mark.parametrize("rounds", [1, pytest.param(7, marks=pytest.mark.soak)])
"""How many times a test kills three times."""


class Streams:
    """Two servers, which cut each connection after some events."""

    def __init__(self) -> None:
        self.servers = [StreamServer(), StreamServer()]
        for server in self.servers:
            self._begin(server)

    def _begin(self, server: StreamServer) -> None:
        server.cut_after = 300
        server.start()

    def add(self, number: int) -> int:
        events = [{"n": n} for n in range(number, number + AT_ONCE)]
        self.servers[number // AT_ONCE % 2].add(*events)
        return AT_ONCE

    def restart(self) -> None:
        """The next one has the first one's port and events."""
        old = self.servers[0]
        old.stop()
        new = StreamServer(old.port)
        new.events = old.events
        self.servers[0] = new
        self._begin(new)


def check(
    kinds: list[str],
    places: list[str],
    send: Callable[[int], int],
    start_job: Any,
    engine: Any,
    folder: Path,
    restart_server: Callable[[], None] = lambda: None,
) -> None:
    parallelism = cycle([2, 1, 3])

    def start() -> Any:
        return start_job(
            folder / "ck",
            str(folder / "out"),
            *places,
            program=PROGRAM,
            master="threads[3]",
            parallelism=next(parallelism),
        )

    producer = Producer(lambda: nullcontext(send), pause_s=0.05)
    found = run_with_kills(kinds, start, producer, engine, folder / "out", restart_server=restart_server)
    assert found == Counter(range(producer.sent))
    print(f"{len(kinds)} kills, {producer.sent} numbers: 0 lost, 0 doubled")


@ROUNDS
def test_each_number_of_files_counts_once(rounds: int, start_job: Any, engine: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()

    def send(number: int) -> int:
        whole = inbox / f".{number}"
        whole.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(number, number + AT_ONCE)))
        whole.rename(inbox / f"{number:08d}.jsonl")
        return AT_ONCE

    check([DRIVER] * 3 * rounds, [f"{inbox}/*.jsonl"], send, start_job, engine, tmp_path)


@ROUNDS
def test_each_event_of_streams_over_http_counts_once(
    rounds: int, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    streams = Streams()
    places = [f"{server.url}/events" for server in streams.servers]
    kinds = [DRIVER, DRIVER, SERVER] * rounds
    check(kinds, places, streams.add, start_job, engine, tmp_path, restart_server=streams.restart)
    for server in streams.servers:
        server.stop()
