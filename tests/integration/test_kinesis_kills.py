"""A job that reads a stream of Kinesis is killed while its shards are split and merged: each record counts
once."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.integration.killed_sources import DRIVER, SLOT, Producer, run_with_kills
from tests.kinesis_server import WHY_NOT, KinesisServer

pytestmark = [pytest.mark.kinesis, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]
PROGRAM = Path(__file__).parent / "jobs" / "kinesis_orders.py"
SHARDS_MAX = 6


def producer_of(server: KinesisServer, stream: str) -> Producer:
    """Sends records, each key's in its order."""

    def send(n: int) -> int:
        records = [(f"k{each % 7}", json.dumps({"n": each}).encode()) for each in range(n, n + 20)]
        server.put_many(stream, records)
        return len(records)

    return Producer(lambda: nullcontext(send), pause_s=0.05)


def reshard(server: KinesisServer, stream: str, chance: random.Random) -> None:
    """A split or a merge of any of the open shards."""
    count = len(server.open_shards(stream))
    if count < 2 or (count < SHARDS_MAX and chance.random() < 0.5):
        server.split(stream, chance.randrange(count))
    else:
        server.merge(stream, chance.randrange(count - 1))


def check_kills(kinds: list[str], start_job: Any, engine: Any, folder: Path, master: str) -> None:
    options = ["--slot-timeout", "3 s", "--restart", "fixed:200 ms"]
    with KinesisServer(reshards=True) as server:
        stream = server.new_stream(2)

        def start() -> Any:
            arguments = (folder / "ck", server.url, stream, str(folder / "out"))
            return start_job(*arguments, program=PROGRAM, master=master, interval="200 ms", options=options)

        def before_kill(chance: random.Random) -> None:
            """Be anywhere between the end of parents and the children."""
            reshard(server, stream, chance)
            threading.Event().wait(chance.random() / 2)

        producer = producer_of(server, stream)
        found = run_with_kills(kinds, start, producer, engine, folder / "out", before_kill=before_kill)
        assert found == Counter(range(producer.sent))
        assert len(server.shards(stream)) >= 2 + len(kinds)


def test_each_record_counts_once_whatever_is_split_and_killed(
    start_job: Any, engine: Any, tmp_path: Path
) -> None:
    """On threads a slot dies with its driver; the soak below kills those of Spark."""
    check_kills([DRIVER] * 2, start_job, engine, tmp_path, "threads[2]")


@pytest.mark.soak
@pytest.mark.spark
def test_twenty_four_kills(start_job: Any, engine: Any, tmp_path: Path) -> None:
    check_kills([SLOT, DRIVER, SLOT] * 8, start_job, engine, tmp_path, "local[2]")
