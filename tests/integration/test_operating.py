"""Signals, and the commands that work on a running job; secrets stay secret."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pace import slowness

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000
PASSWORD = "canary-2f1c9e"
LOOPBACK = {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listened(pid: int) -> set[tuple[str, int]]:
    """Where this process and all that it started listen."""
    found: set[tuple[str, int]] = set()
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with suppress(psutil.Error):  # it has just ended
            sockets = process.net_connections("tcp")
            found.update((each.laddr.ip, each.laddr.port) for each in sockets if each.status == "LISTEN")
    return found


@pytest.fixture(scope="module")
def forks() -> None:
    """The command as a user starts it, in a new interpreter."""


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("threads[2]", marks=pytest.mark.soak),
        pytest.param("local[2]", marks=pytest.mark.spark),
    ],
)
def test_signals_stop_after_a_last_checkpoint_and_the_next_run_goes_on(
    host: str, start_job: Any, feed: Any, judge: Any, follow: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """SIGINT to the whole group, as Ctrl-C sends it, then (in threads) SIGTERM to the driver. The interval
    is so long that only the last checkpoint can have committed the output."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, reached_ms = feed(servers, source, 4), START_MS
    for stop in ("SIGINT to all", "SIGTERM") if host == "threads[2]" else ("SIGINT to all",):
        reached_ms = data.load(20_000, reached_ms)
        job = start_job(tmp_path / "ck", *arguments, master=host, interval="1 h")
        job.wait_event("progress", lambda e: e["records_in"] >= 20_000 and e["phase"] == "running")
        began = time.monotonic()
        if stop == "SIGTERM":
            job.send(signal.SIGTERM)
        else:
            job.kill_group(signal.SIGINT)
        assert job.wait(240) == 0, job.story()
        took = time.monotonic() - began
        finished = job.named("job_finished")[0]
        assert (finished["outcome"], finished["checkpoint_id"]) == ("stopped", 1 if stop != "SIGTERM" else 2)
        assert len(judge(servers).output(output)) > 0
        assert "Traceback" not in job.errors()
        assert took < 10 * slowness(), took
    data.close(reached_ms)
    expected = judge(servers).expected(source)
    rows = follow(servers, output)
    job = start_job(tmp_path / "ck", *arguments, master=host)
    rows.wait_rows(len(expected), job)
    job.kill_group(signal.SIGINT)
    assert job.wait(240) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def test_a_second_sigint_stops_at_once(
    start_job: Any, feed: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """The last checkpoint can't complete, since its output is held back on its way to the broker."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    feed(servers, source, 4).load(20_000, START_MS)
    with engine.holding_commits(servers) as proxy:
        job = start_job(tmp_path / "ck", *arguments, "--sink-servers", proxy.address)
        engine.wait_for(lambda: proxy.held, job)
        job.send(signal.SIGINT)
        job.wait_event("stop_requested")
        job.send(signal.SIGINT)
        began = time.monotonic()
        assert job.wait(240) == 3, job.story()
        assert time.monotonic() - began < 5 * slowness()
        assert "SIGINT" in job.named("job_finished")[0]["reason"]


def test_a_stop_that_can_not_finish_gives_up_within_ten_seconds(
    start_job: Any, feed: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    feed(servers, source, 4).load(20_000, START_MS)
    with engine.holding_commits(servers) as proxy:
        job = start_job(tmp_path / "ck", *arguments, "--sink-servers", proxy.address)
        engine.wait_for(lambda: proxy.held, job)
        job.send(signal.SIGTERM)
        began = time.monotonic()
        assert job.wait(120) == 3, job.story()
        assert time.monotonic() - began < 10 * slowness(), time.monotonic() - began
        assert "no last checkpoint" in job.named("job_finished")[0]["reason"]


def test_commands_on_a_running_job(
    start_job: Any, feed: Any, onceflow: Any, engine: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    folder = str(tmp_path / "ck")
    feed(servers, source, 4).load(20_000, START_MS)
    nothing = onceflow("status", folder)
    assert nothing.returncode == 2
    assert "no job runs" in nothing.stderr
    job = start_job(tmp_path / "ck", *arguments)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    control = tmp_path / "ck" / "running.json"
    assert stat.S_IMODE(control.stat().st_mode) == 0o600
    secret = json.loads(control.read_text())["secret"]

    status = json.loads(onceflow("status", folder, "--json").stdout)
    assert (status["job"], status["phase"]) == ("totals-under-test", "running")
    assert "totals-under-test" in onceflow("status", folder).stdout
    by_name = onceflow("status", "totals-under-test", "--json")
    if by_name.returncode == 0:
        assert json.loads(by_name.stdout)["slots"][0]["pid"] == status["slots"][0]["pid"]
    else:
        assert folder in by_name.stderr, "jobs of other tests are called so, too"
    listed = json.loads(onceflow("list", "--json").stdout)
    assert folder in [entry["checkpoint_dir"] for entry in listed]
    assert "totals-under-test" in onceflow("list").stdout
    found = json.loads(onceflow("checkpoints", folder, "--json").stdout)
    assert all({"checkpoint_id", "completed_ms", "duration_ms", "total_bytes"} <= c.keys() for c in found)
    assert [c for c in found if c["completed"]]
    other = tmp_path / "other.py"
    other.write_text((engine.jobs / "totals.py").read_text().replace("totals-under-test", "another"))
    stranger = start_job(tmp_path / "ck", *arguments, program=other)
    assert stranger.wait(120) == 2, stranger.story()
    assert "belongs to job 'totals-under-test'" in stranger.errors()
    stopped = onceflow("stop", folder, "--json")
    assert stopped.returncode == 0, stopped.stderr
    assert json.loads(stopped.stdout)["job"] == "totals-under-test"
    assert job.wait(240) == 0, job.story()
    assert job.events[-1]["outcome"] == "stopped"
    assert not control.exists()

    again = start_job(tmp_path / "ck", *arguments)
    again.wait_event("checkpoint_completed")
    assert onceflow("cancel", folder).returncode == 0
    assert again.wait(240) == 3, again.story()
    assert "without a last checkpoint" in again.errors()
    assert again.named("job_finished")[0]["outcome"] == "cancelled"
    gone = onceflow("stop", folder)
    assert gone.returncode == 2
    assert "no job runs" in gone.stderr
    for text in ("".join(job.lines), job.errors(), status, stopped.stdout):
        assert secret not in str(text)


@pytest.mark.spark
def test_no_secret_is_shown_anywhere_and_no_port_of_a_local_job_is_open_to_others(
    start_job: Any, feed: Any, onceflow: Any, judge: Any, own_broker: Any, tmp_path: Path
) -> None:
    """A SASL password, the control secret and the key of TLS, through a run, a failure, commands, and every
    file."""
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="admin" password="{PASSWORD}" user_admin="{PASSWORD}";'
    )
    kafka = own_broker(
        extra_listeners={"SASL_PLAINTEXT": "SASL_PLAINTEXT"},
        properties={
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        },
    )
    kafka.create_topic("in", 2)
    kafka.create_topic("out", 2)
    data = feed(kafka.bootstrap_servers, "in", 2)
    data.load(10_000, START_MS)

    def env(password: str) -> dict[str, str]:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "admin"}
        return {"TEST_LIBRDKAFKA": json.dumps({**login, "sasl.password": password})}

    arguments = ("--bootstrap-servers", kafka.address("SASL_PLAINTEXT"), "--input", "in", "--output", "out")
    job = start_job(
        tmp_path / "ck",
        *arguments,
        env=env(PASSWORD),
        master="local[2]",
        options=["--restart", "none", "--tls"],
    )
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    assert job.named("encrypted")[0]["asked_by"] == "--tls"
    assert not job.named("warning")
    control = json.loads((tmp_path / "ck" / "running.json").read_text())
    key = [line for line in control["tls"]["key"].splitlines() if not line.startswith("-")]
    secrets = [PASSWORD, control["secret"], *key]
    assert {ip for ip, _ in listened(job.pid)} <= LOOPBACK
    assert tuple(control["address"]) in listened(job.pid)
    status = onceflow("status", str(tmp_path / "ck"), "--json").stdout
    assert json.loads(status)["phase"] == "running"
    lines = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    wrong = start_job(tmp_path / "ck2", *arguments, env=env(f"{PASSWORD}-no"), master="local[2]")
    assert wrong.wait(240) == 1, wrong.story()
    assert "sasl" in wrong.errors().lower()
    told = ["".join(job.lines), "".join(wrong.lines), job.errors(), status, *lines]
    told += [
        f.read_text(errors="replace") for c in ("ck", "ck2") for f in (tmp_path / c).rglob("*") if f.is_file()
    ]
    for secret in secrets:
        assert not [text for text in told if secret in text]
    assert os.environ.get("TEST_LIBRDKAFKA") is None


def test_more_slots_than_the_master_has_are_refused_at_once(start_job: Any, tmp_path: Path) -> None:
    arguments = ("--bootstrap-servers", "127.0.0.1:1", "--input", "in", "--output", "out")
    job = start_job(tmp_path / "ck", *arguments, master="local[2]", parallelism=3)
    assert job.wait(120) == 2, job.story()
    assert "local[2] has 2" in job.errors()
    assert "Traceback" not in job.errors()
