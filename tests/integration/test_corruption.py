"""A checkpoint that was cut short or altered is read from its copies; without them it is refused by its path,
and an older one can be chosen."""

from __future__ import annotations

import json
import re
import shutil
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


def _flip_an_offset(manifest: dict[str, Any], folder: Path) -> Path:
    """Still valid JSON, and an offset that is there."""
    file: Path = manifest["file"]
    altered, count = re.subn(rb'("next_offset":\d*)(\d)', _flip_the_last_digit, file.read_bytes(), count=1)
    assert count == 1
    json.loads(altered)
    file.write_bytes(altered)
    return file


def _flip_the_last_digit(match: re.Match[bytes]) -> bytes:
    return match[1] + bytes([match[2][0] ^ 1])


def _state(manifest: dict[str, Any], folder: Path) -> Path:
    return next(folder / table["path"] for handle in manifest["states"] for table in handle["tables"])


def _cut_state(manifest: dict[str, Any], folder: Path) -> Path:
    file = _state(manifest, folder)
    file.write_bytes(file.read_bytes()[:-10])
    return file


def _alter(file: Path) -> Path:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file


def _alter_state(manifest: dict[str, Any], folder: Path) -> Path:
    return _alter(_state(manifest, folder))


def _remove_state(manifest: dict[str, Any], folder: Path) -> Path:
    file = _state(manifest, folder)
    file.unlink()
    return file


def _staged(manifest: dict[str, Any], folder: Path) -> Path:
    return next(folder / path for c in manifest["committables"] for path in c["paths"])


def _alter_output(manifest: dict[str, Any], folder: Path) -> Path:
    return _alter(_staged(manifest, folder))


def _remove_output(manifest: dict[str, Any], folder: Path) -> Path:
    file = _staged(manifest, folder)
    file.unlink()
    return file


def _remove_entry(manifest: dict[str, Any], folder: Path) -> Path:
    file: Path = manifest["file"]
    file.unlink()
    return file


def _is_promised(engine: Any, folder: Path, after: int) -> bool:
    """The newest checkpoint is a later one than `after`, whose output is committed, and has output that is
    not; and its entry has its copy."""
    newest = engine.manifests(folder)[-1]
    is_promised = newest["checkpoint_id"] > after and bool(engine.promised(newest))
    return is_promised and (folder / "copies" / "log" / newest["file"].name).exists()


OF_THE_LOG = [_truncate, _flip_an_offset, _remove_entry]
OF_STATE = [_cut_state, _alter_state, _remove_state]
OF_OUTPUT = [_alter_output, _remove_output]


@pytest.mark.parametrize("damage", [*OF_THE_LOG, *OF_STATE, *OF_OUTPUT], ids=lambda damage: damage.__name__)
def test_a_damaged_newest_checkpoint_is_gone_on_from_exactly_though_output_is_committed(
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
    """Output of earlier checkpoints is committed, that of the newest is only promised: there is no older
    one to go back to. The second copies are enough, and it is said that they were needed."""
    servers, source, output = broker.bootstrap_servers, new_topic("in", 4), new_topic("out", 4)
    arguments = ("--bootstrap-servers", servers, "--input", source, "--output", output)
    data = feed(servers, source, 4)
    folder = tmp_path / "ck"
    job = start_job(folder, *arguments)
    reached_ms = data.load(20_000, START_MS)
    job.wait_event("checkpoint_completed", lambda e: e["bytes"] > 0)
    job.send(signal.SIGTERM)
    assert job.wait(240) == 0, job.story()
    with engine.holding_commits(servers) as proxy:
        committed = engine.manifests(folder)[-1]["checkpoint_id"]
        job = start_job(folder, *arguments, "--sink-servers", proxy.address)
        reached_ms = data.load(20_000, reached_ms)
        engine.wait_for(lambda: proxy.held and _is_promised(engine, folder, committed), job)
        job.kill_group()
        job.wait()
    damaged = damage(engine.manifests(folder)[-1], folder)
    listed = onceflow("checkpoints", str(folder), "--verify", "--json")
    assert listed.returncode == 0, listed.stderr
    assert {c["status"] for c in json.loads(listed.stdout)} <= {"completed", "incomplete"}, listed.stdout
    problems = [c["problem"] for c in json.loads(listed.stdout)]
    named = [p for p in problems if str(damaged.relative_to(folder)) in p]
    assert named, listed.stdout
    assert all(p.endswith("; read from its copy") for p in named), listed.stdout
    assert "has no second one left: look at the disk" in listed.stderr
    data.close(reached_ms)
    expected = judge(servers).expected(source)
    rows = follow(servers, output)
    again = start_job(folder, *arguments)
    rows.wait_rows(len(expected), again)
    again.send(signal.SIGTERM)
    assert again.wait(240) == 0, again.story()
    where = str(damaged.relative_to(folder))
    assert any(where in e["message"] for e in again.named("damage_healed")), again.story()
    verdict = judge(servers).verdict(expected, output)
    assert verdict.is_exact, verdict


@pytest.mark.parametrize(
    "damage", [_truncate, _flip_an_offset, *OF_STATE], ids=lambda damage: damage.__name__
)
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
    """No window has fired, so no output was committed since the older one: choosing it stays exact. The
    second copies are lost, too, as if the files were too large to have any."""
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
    shutil.rmtree(folder / "copies")
    refused = start_job(folder, *arguments)
    assert refused.wait(120) == 1, refused.story()
    errors = refused.errors()
    assert str(damaged) in errors, errors
    assert "Traceback" not in errors
    good = older["checkpoint_id"]
    assert f"last good checkpoint: {good} in {folder}" in errors, errors
    assert f"--from {good} goes on from it, exactly, if no later output is committed" in errors, errors
    assert "run the same command again" not in errors, errors
    assert not refused.named("attempt_failed"), "it fails at once"
    listed = onceflow("checkpoints", str(folder), "--verify", "--json")
    assert listed.returncode == 0, listed.stderr
    bad = [c for c in json.loads(listed.stdout) if c["status"] in ("damaged", "unreadable")]
    assert len(bad) == 1, listed.stdout
    assert str(damaged) in bad[0]["problem"]
    chosen = start_job(folder, *arguments, options=["--from", str(older["checkpoint_id"])])
    started = chosen.wait_event("attempt_started")
    assert started["checkpoint_id"] == older["checkpoint_id"], chosen.story()
    data.close(reached_ms)
    expected = judge(servers).expected(source, window_ms=3_600_000)
    rows = follow(servers, output)
    rows.wait_rows(len(expected), chosen)
    chosen.send(signal.SIGTERM)
    assert chosen.wait(240) == 0, chosen.story()
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
    assert refused.wait(120) == 1, refused.story()
    errors = refused.errors()
    assert "write that output again" in errors
    newest = engine.manifests(folder)[-1]["checkpoint_id"]
    assert f"a newer one is kept: --from {newest} goes on from it" in errors, errors
    assert len(judge(servers).output(output)) == len(before)
