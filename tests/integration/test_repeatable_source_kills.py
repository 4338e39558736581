"""Jobs that read files (here, on S3, on HDFS), streams over HTTP, or files and then a topic, are killed again
and again while there comes more: each number is there once, on whatever parallelism the job goes on.

On threads a slot dies with its driver; slots on Spark are killed in test_files.py and test_http_stream.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import confluent_kafka
import fsspec
import pytest

from tests.hdfs_server import HdfsServer
from tests.integration.killed_sources import DRIVER, SERVER, Producer, run_with_kills, seen
from tests.s3_server import S3Server, gateway
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
    places: Sequence[str],
    send: Callable[[int], int],
    start_job: Any,
    engine: Any,
    folder: Path,
    restart_server: Callable[[], None] = lambda: None,
    history: int = 0,
    pause_s: float = 0.05,
) -> None:
    """`history`: how many numbers below 0 are there before those of `send`. `pause_s`: between two of it."""
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

    producer = Producer(lambda: nullcontext(send), pause_s=pause_s)

    def is_done() -> bool:
        return len(seen(folder / "out")) >= producer.sent + history

    found = run_with_kills(
        kinds, start, producer, engine, folder / "out", restart_server=restart_server, is_done=is_done
    )
    assert found == Counter(range(-history, producer.sent))
    print(f"{len(kinds)} kills, {producer.sent} numbers: 0 lost, 0 doubled")


@ROUNDS
def test_each_number_of_files_counts_once(rounds: int, start_job: Any, engine: Any, tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()

    def send(number: int) -> int:
        whole = inbox / f".{number}"
        whole.write_text(lines(number, AT_ONCE))
        whole.rename(inbox / f"{number:08d}.jsonl")
        return AT_ONCE

    places = ["files", f"{inbox}/*.jsonl", "{}"]
    check([DRIVER] * 3 * rounds, places, send, start_job, engine, tmp_path)


def lines(first: int, count: int) -> str:
    return "".join(json.dumps({"n": n}) + "\n" for n in range(first, first + count))


@pytest.mark.soak
@pytest.mark.parametrize("where", ["s3", "hdfs"])
def test_each_number_of_files_elsewhere_counts_once(
    where: str, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    with S3Server(gateway()) if where == "s3" else HdfsServer() as server:
        url = server.new_folder()
        fs, root = fsspec.core.url_to_fs(url, **server.options)
        fs.makedirs(root, exist_ok=True)

        def send(number: int) -> int:
            """An object is there whole or not at all; on HDFS it gets its name when it is whole."""
            text, name = lines(number, 100).encode(), f"{number:08d}.jsonl"
            if where == "s3":
                fs.pipe_file(f"{root}/{name}", text)
            else:
                fs.pipe_file(f"{root}-new/{name}", text)
                fs.mv(f"{root}-new/{name}", f"{root}/{name}")
            return 100

        places = ["files", f"{url}/*.jsonl", json.dumps(server.options)]
        check([DRIVER] * 21, places, send, start_job, engine, tmp_path, pause_s=0.4)


@pytest.mark.soak
@pytest.mark.kafka
def test_each_number_of_history_and_of_the_topic_behind_it_counts_once(
    start_job: Any, engine: Any, tmp_path: Path, broker: Any, new_topic: Callable[..., str]
) -> None:
    """About half of the kills fall into the history."""
    inbox, history, topic = tmp_path / "in", 4_000, new_topic("live", partitions=3)
    inbox.mkdir()
    for first in range(-history, 0, 100):
        (inbox / f"{first + history:08d}.jsonl").write_text(lines(first, 100))
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

    def send(number: int) -> int:
        for n in range(number, number + AT_ONCE):
            producer.produce(topic, json.dumps({"n": n}))
        assert producer.flush(30) == 0
        return AT_ONCE

    places = ["hybrid", f"{inbox}/*.jsonl", broker.bootstrap_servers, topic]
    check([DRIVER] * 21, places, send, start_job, engine, tmp_path, history=history)


@ROUNDS
def test_each_event_of_streams_over_http_counts_once(
    rounds: int, start_job: Any, engine: Any, tmp_path: Path
) -> None:
    streams = Streams()
    places = ["streams", *(f"{server.url}/events" for server in streams.servers)]
    kinds = [DRIVER, DRIVER, SERVER] * rounds
    check(kinds, places, streams.add, start_job, engine, tmp_path, restart_server=streams.restart)
    for server in streams.servers:
        server.stop()
