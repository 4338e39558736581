"""The example of the whole way, Kafka to Spark's own operators to Kafka, killed and run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytest.importorskip("pyspark.sql")
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_windowed_totals.py"
RECORDS = 20_000
START_MS = 1_700_000_000_000
WINDOW_MS = 500
BATCH_S = 200.0
"""How long a run may take to its next batch, JVM and all, on a machine that does other things too."""

MakeTopic = Callable[..., str]


class Example:
    """The program, in a process group of its own; `kill` leaves nothing of it."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.arguments = arguments
        self.folder = folder
        self.log = folder / "log"

    def start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(EXAMPLE), *self.arguments],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def batches(self, kind: str) -> int:
        """How many micro-batches Spark has written down: in `offsets` as begun, in `commits` as done."""
        return len([path for path in (self.folder / "checkpoint" / kind).glob("*") if path.name.isdecimal()])

    def kill_in_a_batch(self, chance: random.Random) -> bool:
        """kill -9 of the driver and all its processes, some time after it has begun one batch more. False
        if it was quicker, and has done everything."""
        before = self.batches("offsets")
        process = self.start()
        deadline = time.monotonic() + BATCH_S
        while self.batches("offsets") == before and process.poll() is None:
            assert time.monotonic() < deadline, self.story()
            threading.Event().wait(0.02)
        threading.Event().wait(chance.uniform(0, 1.5))  # where in the batch is chance, and meant to be
        if process.poll() is not None:
            assert process.returncode == 0, self.story()
            return False
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True

    def run_to_the_end(self) -> None:
        process = self.start()
        assert process.wait(4 * BATCH_S) == 0, self.story()

    def story(self) -> str:
        return self.log.read_text(errors="replace")[-5_000:]


def run_with_kills(
    kills: int, seed: int, broker: EmbeddedKafka, new_topic: MakeTopic, tmp_path: Path, feed: Any, judge: Any
) -> None:
    source, target = new_topic("purchases", partitions=4), new_topic("totals", partitions=2)
    servers = broker.bootstrap_servers
    load = feed(servers, source, 4)
    load.close(load.load(RECORDS, START_MS, per_ms=5))
    arguments = ["--bootstrap-servers", servers, "--input", source, "--output", target]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--staging", str(tmp_path / "staging")]
    arguments += ["--max-offsets-per-trigger", str(RECORDS // (2 * kills + 3)), "--available-now"]
    arguments += ["--window", f"{WINDOW_MS} milliseconds"]
    example = Example(arguments, tmp_path)
    chance = random.Random(seed)
    killed = [example.kill_in_a_batch(chance) for _ in range(kills)]
    assert killed[0]
    example.run_to_the_end()
    judged = judge(servers)
    verdict = judged.verdict(judged.expected(source, window_ms=WINDOW_MS), target)
    assert verdict.is_exact, f"{verdict}\n{example.story()}"
    assert example.batches("commits") == example.batches("offsets") > kills


@pytest.mark.soak
def test_a_windowed_query_that_is_killed_twice_loses_and_doubles_nothing(
    broker: EmbeddedKafka, new_topic: MakeTopic, tmp_path: Path, feed: Any, judge: Any
) -> None:
    run_with_kills(2, 1, broker, new_topic, tmp_path, feed, judge)


@pytest.mark.soak
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(5))
def test_the_same_with_twenty_kills(
    seed: int, broker: EmbeddedKafka, new_topic: MakeTopic, tmp_path: Path, feed: Any, judge: Any
) -> None:
    run_with_kills(20, seed, broker, new_topic, tmp_path, feed, judge)
