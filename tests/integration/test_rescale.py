"""State, timers, offsets and output that is not committed yet move to another parallelism."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onceflow.cli.operate import ask
from onceflow.runtime.control.messages import AskRescale

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


@pytest.mark.parametrize(
    "host", ["threads[4]", pytest.param("local[6]", marks=[pytest.mark.spark, pytest.mark.slow])]
)
def test_rescaled_while_it_runs_and_killed_meanwhile(
    host: str,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """Up and down by the command, with the next slots warm where there is room for both. Then a slot is
    killed while the attempt ends: the next one has the new number of slots. Then the driver is killed: the
    number of its command counts again."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data = feed(servers, source, 4)
    rows = follow(servers, output)
    data.run(4_000)

    def start() -> Any:
        return start_job(tmp_path / "ck", *arguments, master=host, parallelism=2, interval="200 ms")

    job = start()
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    for before, slots in pairwise((2, 4, 3, 1, 3)):
        since = job.mark
        assert rescale(tmp_path / "ck", slots) == f"totals-under-test runs with {slots} slots"
        told = job.wait_event("rescaled", after=since)
        assert told["slots"] == slots
        warmed = [event["slots"] for event in job.events[since:] if event["event"] == "slots_warmed"]
        assert warmed == ([slots] if host.startswith("threads") or before + slots <= 6 else [])
        assert len(job.slots()) == slots
        first = job.wait_event("first_record", after=since)
        job.wait_event("checkpoint_completed", after=job.events.index(first) + 1)
        paused_s = first["at"] - told["at"]
        print(f"{host}: from {told['slots_before']} to {slots} slots: {paused_s:.2f} s to a record")
    since = job.mark
    ask(str(tmp_path / "ck"), AskRescale(slots=2))
    victim = job.slots()[0]
    if host == "local[6]":
        os.kill(victim, signal.SIGKILL)
    job.wait_event("rescaled", after=since)
    job.wait_event(
        "checkpoint_completed", after=job.events.index(job.wait_event("first_record", after=since)) + 1
    )
    assert len(job.slots()) == 2
    assert rescale(tmp_path / "ck", 4).endswith("4 slots")
    job.kill_group()
    job.wait()
    job = start()
    job.wait_event("first_record")
    assert len(job.slots()) == 2, "the command's own number"
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def rescale(folder: Path, slots: int) -> str:
    """What the command says."""
    command = [sys.executable, "-c", "from onceflow.cli.app import main; main()"]
    asked = [*command, "rescale", str(folder), str(slots)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_number_of_slots_that_can_not_be_is_refused_and_the_job_goes_on(
    start_job: Any, feed: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data = feed(servers, source, 2)
    data.load(1_000, START_MS)
    job = start_job(tmp_path / "ck", *arguments, parallelism=2, interval="100 ms")
    job.wait_event("checkpoint_completed")
    for slots in (0, 100_000):
        answer = ask(str(tmp_path / "ck"), AskRescale(slots=slots))
        assert "choose a number from 1 to that" in answer["refused"]
    job.wait_event("checkpoint_completed", after=job.mark)
    assert not job.named("rescaled")
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
