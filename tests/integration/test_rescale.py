"""State, timers, offsets and output that is not committed yet move to another parallelism."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def forks() -> None:
    """A job goes on in another interpreter, whose hashes have another seed."""


@pytest.mark.parametrize(
    ("host", "parallelism"),
    [
        pytest.param("threads[4]", 1, marks=pytest.mark.soak),
        ("threads[4]", 4),
        pytest.param("local[4]", 3, marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_killed_at_two_slots_restored_at_another_number(
    host: str,
    parallelism: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """A checkpoint becomes durable whose output is held back on its way to the broker; then all is
    killed. The next run commits it for its old owners, and goes on."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data = feed(servers, source, 4)
    reached_ms = data.load(40_000, START_MS)
    with engine.holding_commits(servers) as proxy:
        behind = ("--sink-servers", proxy.address)
        job = start_job(tmp_path / "ck", *arguments, *behind, master=host, parallelism=2)
        engine.wait_for(lambda: engine.holds_promise(proxy, tmp_path / "ck"), job)
        job.kill_group()
        job.wait()
    promised = engine.promised(engine.manifests(tmp_path / "ck")[-1])
    assert judge(servers).output(output).is_empty()
    rows = follow(servers, output)
    again = start_job(tmp_path / "ck", *arguments, master=host, parallelism=parallelism)
    data.close(data.load(40_000, reached_ms))
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), again)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    verdict = judge(servers).verdict(expected, output)
    print(f"{promised} rows were promised at parallelism 2 and committed at {parallelism}: {verdict}")
    assert verdict.is_exact, verdict
    assert len(again.slots()) == parallelism


def test_stopped_cleanly_and_restored_up_and_down(
    start_job: Any, feed: Any, judge: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, reached_ms = feed(servers, source, 4), START_MS
    rows = follow(servers, output)
    for parallelism in (2, 4, 1, 3):
        job = start_job(tmp_path / "ck", *arguments, parallelism=parallelism)
        reached_ms = data.load(30_000, reached_ms)
        if parallelism == 3:
            data.close(reached_ms)
            expected = judge(servers).expected(source)
            rows.wait_rows(len(expected), job)
        else:
            job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
        job.send(signal.SIGTERM)
        assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
