"""A checkpoint that was cut short or altered is refused by its path; an older one can be chosen."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.kafka
START_MS = 1_700_000_000_000


def _truncate(manifest: dict[str, Any], folder: Path) -> Path:
    file: Path = manifest["file"]
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return file


def _cut_state(manifest: dict[str, Any], folder: Path) -> Path:
    file = folder / manifest["states"][0]["tables"][0]["path"]
    file.write_bytes(file.read_bytes()[:-10])
    return file


def _alter_state(manifest: dict[str, Any], folder: Path) -> Path:
    file = folder / manifest["states"][0]["tables"][0]["path"]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0xFF
    file.write_bytes(content)
    return file


def _remove_state(manifest: dict[str, Any], folder: Path) -> Path:
    file = folder / manifest["states"][0]["tables"][0]["path"]
    file.unlink()
    return file


@pytest.mark.parametrize("damage", [_truncate, _cut_state, _alter_state, _remove_state])
def test_a_damaged_checkpoint_is_refused_and_an_older_one_can_be_chosen(
    damage: Any,
    start_job: Any,
    feed: Any,
    judge: Any,
    follow: Any,
    engine: Any,
    broker: Any,
    new_topic: Any,
    onceflow: Any,
    tmp_path: Path,
) -> None:
    """No window has fired, so no output was committed since the older one: choosing it stays exact."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output, "--window", "1 h")
    data = feed(servers, source, 4)
    reached_ms = data.load(10_000, START_MS)
    folder = tmp_path / "ck"
    job = start_job(folder, *arguments)
    job.wait_event("progress", lambda e: e["records_in"] == 10_000)
    reached_ms = data.load(10_000, reached_ms)
    for _ in range(4):
        job.wait_event("checkpoint_completed", after=job.mark)
    job.kill_group()
    job.wait()
    *_, older, latest = engine.manifests(folder)
    damaged = damage(latest, folder)
    refused = start_job(folder, *arguments)
    assert refused.wait(30) == 1, refused.story()
    errors = refused.errors()
    assert str(damaged) in errors, errors
    assert "Traceback" not in errors
    assert str(older["checkpoint_id"]) in errors.split(str(damaged))[1], errors
    listed = onceflow("checkpoints", str(folder))
    assert listed.returncode == 0, listed.stderr
    chosen = start_job(folder, *arguments, options=["--from", str(older["checkpoint_id"])])
    started = chosen.wait_event("attempt_started")
    assert started["checkpoint_id"] == older["checkpoint_id"], chosen.story()
    data.close(reached_ms)
    expected = judge(servers).expected(source, window_ms=3_600_000)
    rows = follow(servers, output)
    rows.wait_rows(len(expected), chosen)
    chosen.send(signal.SIGTERM)
    assert chosen.wait(15) == 0, chosen.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


def test_an_older_checkpoint_whose_later_output_is_committed_is_refused(
    start_job: Any, feed: Any, engine: Any, judge: Any, broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    """It would write that output again."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 2), new_topic("out", 2)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    folder = tmp_path / "ck"
    data = feed(servers, source, 2)
    job = start_job(folder, *arguments, options=["--retained", "50"])
    reached_ms = START_MS
    for _ in range(2):
        since = job.mark
        reached_ms = data.load(10_000, reached_ms)
        for _ in range(3):
            done = job.wait_event("checkpoint_completed", after=since)
            since = job.events.index(done) + 1
    job.kill_group()
    job.wait()
    first = next(m for m in engine.manifests(folder) if engine.promised(m))
    before = judge(servers).output(output)
    refused = start_job(folder, *arguments, options=["--from", str(first["checkpoint_id"] - 1)])
    assert refused.wait(30) == 1, refused.story()
    assert "write that output again" in refused.errors()
    assert len(judge(servers).output(output)) == len(before)
