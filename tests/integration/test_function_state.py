"""State without a key on a real broker: a job is rescaled while it runs, killed, and started at yet another
parallelism; no element of its lists is lost or doubled."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onceflow import read_state
from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskRescale
from tests.integration.conftest import read_topic

pytestmark = pytest.mark.kafka
PROGRAM = Path(__file__).parent / "jobs" / "numbered.py"
EACH, PARTITIONS = 2_000, 4


@pytest.mark.parametrize(
    "host", ["threads[4]", pytest.param("local[4]", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_rescaled_while_it_runs_and_killed(
    host: str, start_job: Any, feed: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", PARTITIONS), new_topic("out", 1)
    folder, given = tmp_path / "ck", 0

    def load() -> None:
        nonlocal given
        for n in range(EACH * PARTITIONS):
            data.send(f"user-{n % PARTITIONS}", given + n, n, n % PARTITIONS)
        data.flush()
        given += EACH * PARTITIONS

    def start(parallelism: int) -> Any:
        return start_job(
            folder, servers, source, output, program=PROGRAM, master=host, parallelism=parallelism
        )

    data, rows = feed(servers, source, PARTITIONS), follow(servers, output)
    job = start(2)
    job.wait_event("checkpoint_completed")
    for slots in (4, 1, 3):
        load()
        since = job.mark
        ask(str(folder), AskRescale(slots=slots))
        assert job.wait_event("rescaled", after=since)["slots"] == slots
    rows.wait_rows(given // 2, job)
    job.kill_group()
    job.wait()
    again = start(2)
    load()
    rows.wait_rows(given, again)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    found = Counter(
        (row["user"], row["count"]) for row in map(msgspec.json.decode, read_topic(servers, output))
    )
    assert found == Counter((f"user-{u}", n) for u in range(PARTITIONS) for n in range(given // PARTITIONS))
    with read_state(str(folder)) as state:
        kept = state.table("number", "sums").read().column("value").to_pylist()
    sums = list(map(msgspec.msgpack.decode, kept))
    assert sum(each["count"] for each in sums) == given
    assert sum(each["total"] for each in sums) == given * (given - 1) // 2
