"""What can never work is fatal at once, and says why; it is not tried twelve times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.job_process import is_gone

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000
HOSTS = ["threads[2]", pytest.param("local[2]", marks=pytest.mark.spark)]


def test_a_wrong_broker_address_is_fatal_at_once_and_named(start_job: Any, tmp_path: Path) -> None:
    arguments = ("--bootstrap-servers", "127.0.0.1:1", "--input", "in", "--output", "out", "--give-up", "2 s")
    job = start_job(tmp_path / "ck", *arguments)
    assert job.wait(240) == 1, job.story()
    assert not job.named("attempt_failed"), job.story()
    assert "127.0.0.1:1" in job.errors()
    assert "Traceback" not in job.errors()


def test_a_wrong_address_of_the_sinks_broker_is_fatal_at_once_and_named(
    start_job: Any, feed: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Records flow meanwhile: that the source works says nothing of the sink."""
    servers, source = broker.bootstrap_servers, new_topic("in", 2)
    feed(servers, source, 2).load(10_000, START_MS)
    arguments = ("--bootstrap-servers", servers, "--sink-servers", "127.0.0.1:1", "--input", source)
    job = start_job(tmp_path / "ck", *arguments, "--output", "out", "--give-up", "3 s")
    assert job.wait(240) == 1, job.story()
    assert not job.named("attempt_failed"), job.story()
    assert "127.0.0.1:1" in job.errors()


@pytest.mark.parametrize("folder", ["log", "staged"])
def test_a_folder_that_can_not_be_written_is_fatal_at_once_and_named(
    folder: str, start_job: Any, feed: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    feed(servers, source, 2).load(10_000, START_MS)
    (tmp_path / "ck").mkdir()
    (tmp_path / "ck" / folder).touch()
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    job = start_job(tmp_path / "ck", *arguments, interval="100 ms")
    assert job.wait(240) == 1, job.story()
    assert not job.named("attempt_failed"), job.story()
    assert str(tmp_path / "ck" / folder) in job.errors()


@pytest.mark.parametrize("host", HOSTS)
def test_a_missing_output_topic_always_gets_its_sentence(
    host: str, start_job: Any, feed: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """Each slot says so and ends, its peers see it go, and the host tells of their end: all at once."""
    servers, source = broker.bootstrap_servers, new_topic("in", 2)
    feed(servers, source, 2).load(1_000, START_MS)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", "not-there")
    for run in range(4 if host == "threads[2]" else 1):
        job = start_job(tmp_path / f"ck-{run}", *arguments, master=host)
        assert job.wait(240) == 1, job.story()
        assert "'not-there' does not exist" in job.named("job_finished")[0]["reason"], (run, job.story())
        assert not job.named("attempt_failed"), (run, job.story())


@pytest.mark.parametrize("host", HOSTS)
def test_a_user_function_that_hangs_is_found_and_named_with_its_record(
    host: str, start_job: Any, feed: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """`while True: pass`: the slot goes on showing that it lives. On Spark its process is ended, and a second
    call that hangs on the same record is the end; a thread can't be ended, so there the first one is."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    (tmp_path / "fuses").mkdir()
    (tmp_path / "fuses" / "hang").touch()
    data = feed(servers, source, 2)
    data.load(10_000, START_MS)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    arguments += ("--trouble", str(tmp_path / "fuses"))
    job = start_job(tmp_path / "ck", *arguments, master=host, options=["--slot-timeout", "4 s"])
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    data.send("trouble", 1, START_MS, 1)
    data.flush()
    job.wait_event("progress", lambda e: "has been in one call for" in str(e["waiting"]))
    assert job.wait(240) == 1, job.story()
    for part in (
        "operator 'trouble'",
        f"the record in {source}-1 at offset 5000",
        "user='trouble'",
        "slot_timeout",
    ):
        assert part in job.errors(), job.story()
    failed = job.named("attempt_failed")
    assert len(failed) == (0 if host == "threads[2]" else 1), job.story()
    for pid in (slot["pid"] for event in job.named("slots_started") for slot in event["slots"]):
        assert is_gone(pid)


@pytest.mark.parametrize("host", ["threads[1]", pytest.param("local[2]", marks=pytest.mark.spark)])
def test_a_user_function_that_keeps_pythons_lock_is_found_and_named_with_its_line(
    host: str, start_job: Any, feed: Any, broker: Any, new_topic: Any, engine: Any, tmp_path: Path
) -> None:
    """A regular expression that never ends: no thread of Python's in its process runs any more. A slot's
    process is ended, and a second stop at the same line is the end; a job on threads ends there and then."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    (tmp_path / "fuses").mkdir()
    (tmp_path / "fuses" / "lock").touch()
    data = feed(servers, source, 2)
    data.load(10_000, START_MS)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    arguments += ("--trouble", str(tmp_path / "fuses"))
    job = start_job(tmp_path / "ck", *arguments, master=host, options=["--slot-timeout", "4 s"])
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    data.send("trouble", 1, START_MS, 1)
    data.flush()
    assert job.wait(240) == 1, job.story()
    lines = (engine.jobs / "totals.py").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "re.match(" in text)
    if host == "threads[1]":
        assert f'totals.py", line {line} in check' in job.errors(), job.story()
        return
    (failed,) = job.named("attempt_failed")
    for reason in (failed["reason"], job.errors()):
        assert f"totals.py:{line} in check" in reason, job.story()
        assert "slot_timeout" in reason
    assert "failed for the same reason" in job.errors()
    for pid in (slot["pid"] for event in job.named("slots_started") for slot in event["slots"]):
        assert is_gone(pid)
