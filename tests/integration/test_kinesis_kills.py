"""A job that reads a stream of Kinesis is killed while its shards are split and merged: each record counts
once."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kinesis_server import WHY_NOT, KinesisServer

pytestmark = [pytest.mark.kinesis, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
PROGRAM = Path(__file__).parent / "jobs" / "kinesis_orders.py"
SHARDS_MAX = 6


class Producer:
    """Sends numbered records, each key's in its order, until it is closed."""

    def __init__(self, server: KinesisServer, stream: str) -> None:
        self._server, self._stream, self._over = server, stream, threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            numbers = range(self.sent, self.sent + 20)
            records = [(f"k{n % 7}", json.dumps({"n": n}).encode()) for n in numbers]
            self._server.put_many(self._stream, records)
            self.sent += len(records)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def seen(folder: Path) -> Counter[int]:
    rows: Counter[int] = Counter()
    for path in folder.glob("out-*.jsonl"):
        rows.update(json.loads(line)["n"] for line in path.read_text().splitlines())
    return rows


def reshard(server: KinesisServer, stream: str, chance: random.Random) -> None:
    """A split or a merge of any of the open shards."""
    count = len(server.open_shards(stream))
    if count < 2 or (count < SHARDS_MAX and chance.random() < 0.5):
        server.split(stream, chance.randrange(count))
    else:
        server.merge(stream, chance.randrange(count - 1))


def run_with_kills(kinds: list[str], start_job: Any, engine: Any, folder: Path, master: str) -> None:
    chance = random.Random(len(kinds))
    options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
    with KinesisServer(reshards=True) as server:
        stream = server.new_stream(2)

        def start() -> Any:
            arguments = (folder / "ck", server.url, stream, str(folder / "out"))
            return start_job(*arguments, program=PROGRAM, master=master, interval="200 ms", options=options)

        producer = Producer(server, stream)
        job = start()
        for kind in kinds:
            before, mark = seen(folder / "out").total(), job.mark
            engine.wait_for(
                lambda count=before: seen(folder / "out").total() > count + chance.randrange(200), job, 180
            )
            reshard(server, stream, chance)
            threading.Event().wait(
                chance.random() / 2
            )  # anywhere between the end of parents and the children
            if kind == "driver and slots":
                job.kill_group()
                job.wait()
                job = start()
            else:
                os.kill(chance.choice(job.slots()), signal.SIGKILL)
                job.wait_event("restarted", after=mark, timeout=360)
        producer.close()
        engine.wait_for(lambda: len(seen(folder / "out")) >= producer.sent, job, 120)
        job.send(signal.SIGTERM)
        assert job.wait(240) == 0, job.story()
        assert seen(folder / "out") == Counter(range(producer.sent))
        assert len(server.shards(stream)) >= 2 + len(kinds)


def test_each_record_counts_once_whatever_is_split_and_killed(
    start_job: Any, engine: Any, tmp_path: Path
) -> None:
    """On threads a slot dies with its driver; the soak below kills those of Spark."""
    run_with_kills(["driver and slots"] * 2, start_job, engine, tmp_path, "threads[2]")


@pytest.mark.soak
@pytest.mark.spark
def test_twenty_four_kills(start_job: Any, engine: Any, tmp_path: Path) -> None:
    run_with_kills(["slot", "driver and slots", "slot"] * 8, start_job, engine, tmp_path, "local[2]")
