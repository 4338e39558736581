"""A job on two executors whose driver and slots speak TLS because Spark's own traffic is encrypted: a slot is
killed, strangers come to its ports, and the output is exact."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from onceflow.runtime.hosts.spark.class_archive import spark_home

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
START_MS = 1_700_000_000_000
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of-this-test",
    "spark.network.crypto.enabled": "true",
}


def ports(pid: int) -> list[tuple[str, int]]:
    """Where a process listens."""
    return [
        (each.laddr.ip, each.laddr.port)
        for each in psutil.Process(pid).net_connections("tcp")
        if each.status == "LISTEN"
    ]


def intrude(address: tuple[str, int], sent: bytes) -> bytes:
    """What a stranger is told who sends this and no more."""
    heard = b""
    with socket.create_connection(address, timeout=120) as stranger:
        with suppress(OSError):
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while more := stranger.recv(4096):
                heard += more
    return heard


def last_words() -> str:
    """What the executors of this machine said last, and what a JVM that crashed has left."""
    home = spark_home()
    assert home is not None
    left = [path for path in (home / "work").glob("app-*/*/*") if path.name.startswith(("stderr", "hs_err"))]
    return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(left))


def test_a_kill_and_strangers_on_an_encrypted_cluster_leave_the_output_exact(
    start_job: Any,
    feed: Any,
    follow: Any,
    judge: Any,
    onceflow: Any,
    broker: Any,
    new_topic: Any,
    tmp_path: Path,
) -> None:
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data, rows = feed(servers, source, 4), follow(servers, output)
    reached_ms = data.load(20_000, START_MS)
    options = [part for each in SETTINGS.items() for part in ("--conf", "=".join(each))]
    job = start_job(tmp_path / "ck", *arguments, master="local-cluster[2,1,1024]", options=options)
    assert job.wait_event("encrypted")["asked_by"] == "spark.network.crypto.enabled"
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0, timeout=480)
    slots = job.slots()
    assert len({psutil.Process(psutil.Process(pid).ppid()).ppid() for pid in slots}) == 2, "two executors"

    control = json.loads((tmp_path / "ck" / "running.json").read_text())["address"]
    exchange = [address for pid in slots for address in ports(pid)]
    assert len(exchange) == 2
    for address in (tuple(control), *exchange):
        assert address[0] == "127.0.0.1"
        for sent in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(300), b"\x16\x03\x01" + os.urandom(600)):
            assert len(intrude(address, sent)) < 4_096, "more than the handshake of TLS"
    reached_ms = data.load(20_000, reached_ms)
    since = job.mark
    os.kill(slots[0], signal.SIGKILL)
    job.wait_event("restarted", after=since, timeout=480)
    waited = {reason for event in job.named("progress") for reason in event["waiting"]}
    assert len(job.named("attempt_failed")) == 1, f"{job.story()}\n{waited}\n{last_words()}"
    data.load(20_000, reached_ms)
    data.close(reached_ms)
    expected = judge(servers).expected(source)
    rows.wait_rows(len(expected), job, timeout=480)
    stopped = onceflow("stop", str(tmp_path / "ck"), "--json")
    assert stopped.returncode == 0, stopped.stderr
    assert job.wait(120) == 0, job.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict
    assert [line for line in job.lines if not line.startswith('{"event"')] == []
    assert not re.search(r"Traceback|\[Stage \d| (?:INFO|WARN) ", job.errors()), job.errors()
