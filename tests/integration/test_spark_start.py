"""A job's start on Spark: before the JVM is there, again and again after kills, and stopped meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pace import slowness

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
HELD = Path(__file__).with_name("spark_held_program.py")
START_MS = 1_700_000_000_000


def children(job: Any) -> list[psutil.Process]:
    """The JVM, its Python daemon and the slots."""
    return psutil.Process(job.pid).children(recursive=True)


def lives(process: psutil.Process) -> bool:
    """A zombie has ended. (`psutil.wait_procs` may raise for one that ends while it is asked.)"""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_gone(processes: list[psutil.Process], timeout: float = 80) -> None:
    deadline = time.monotonic() + timeout
    while alive := [process for process in processes if lives(process)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def test_an_attempt_is_launched_before_the_jvm_is_up(
    feed: Any, judge: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """The first run, and a restart that finds a checkpoint: log and sources answer, and the JVM does not
    yet. What it has is a context that can't be used."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ["--bootstrap-servers", servers, "--input", source, "--output", output]
    data = feed(servers, source, 4)
    reached_ms = data.load(5_000, START_MS)
    for run in range(2):
        if run == 1:
            reached_ms = data.load(5_000, reached_ms)
            data.close(reached_ms)
        command = [sys.executable, str(HELD), str(tmp_path / "ck"), "20", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=480, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert not [e for e in events if e["event"] == "attempt_failed"], events
        if run == 1:
            assert next(e for e in events if e["event"] == "attempt_started")["checkpoint_id"] > 0
    verdict = judge(servers).verdict(judge(servers).expected(source), output)
    assert verdict.is_exact, verdict


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("restarts", [2, pytest.param(30, marks=pytest.mark.soak)])
def test_the_same_command_comes_up_again_after_each_kill_of_the_driver(
    restarts: int,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    """SIGKILL of the driver alone, and the next start at once: the JVM and the slots of the one before may
    still be there. They end by themselves, and what they could write is fenced."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    data.run(2_000)
    left: list[psutil.Process] = []
    for _ in range(restarts):
        job = start_job(tmp_path / "ck", *arguments, master="local[2]")
        first = job.wait_event("checkpoint_completed")
        job.wait_event("checkpoint_completed", after=job.events.index(first) + 1)
        assert not job.named("attempt_failed"), job.story()
        left += children(job)
        os.kill(job.pid, signal.SIGKILL)
        job.wait()
        assert "Traceback" not in job.errors()
    job = start_job(tmp_path / "ck", *arguments, master="local[2]")
    job.wait_event("checkpoint_completed")
    wait_gone(left)
    data.close()
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


@pytest.mark.parametrize(
    ("moment", "how"),
    [
        ("job_started", "SIGINT to all"),
        ("attempt_started", "SIGTERM"),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [
                ("job_started", "SIGTERM to all"),
                ("job_started", "SIGTERM"),
                ("attempt_started", "SIGINT to all"),
                ("attempt_started", "SIGTERM to all"),
            ]
        ),
    ],
)
def test_a_signal_while_the_jvm_comes_up_ends_the_job_cleanly(
    how: str, moment: str, start_job: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Ctrl-C, a service manager, and `kill` send it in their own ways."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    job = start_job(tmp_path / "ck", *arguments, master="local[2]")
    job.wait_event(moment)
    left = children(job)
    began = time.monotonic()
    if how == "SIGTERM":
        job.send(signal.SIGTERM)
    else:
        job.kill_group(signal.SIGINT if how == "SIGINT to all" else signal.SIGTERM)
    assert job.wait(120) == 0, job.story()
    assert time.monotonic() - began < 20 * slowness()
    assert job.events[-1]["event"] == "job_finished"
    assert job.events[-1]["outcome"] == "stopped"
    assert "Traceback" not in job.errors()
    wait_gone(left)
