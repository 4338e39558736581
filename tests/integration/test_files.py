"""Files in, keyed state, files out: killed at any time, and restored at another parallelism."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
PROGRAM = Path(__file__).parent / "jobs" / "file_counts.py"
USERS, RECORDS = 7, 500


def add_files(folder: Path, numbers: range) -> None:
    """Each is whole when it gets its name."""
    for number in numbers:
        lines = (json.dumps({"user": f"u{(number + n) % USERS}", "n": 1}) for n in range(RECORDS))
        whole = folder / f".{number}"
        whole.write_text("".join(line + "\n" for line in lines))
        whole.rename(folder / f"{number:04d}.jsonl")


def read(folder: Path) -> Counter[tuple[str, int]]:
    """What anybody sees, at any time: whole files with whole lines."""
    rows: Counter[tuple[str, int]] = Counter()
    for path in folder.glob("out-*.jsonl"):
        text = path.read_text()
        assert text.endswith("\n")
        rows.update((row["user"], row["n"]) for row in map(json.loads, text.splitlines()))
    return rows


def expected(files: int) -> Counter[tuple[str, int]]:
    """Every count of each user, once."""
    seen = Counter(f"u{(number + n) % USERS}" for number in range(files) for n in range(RECORDS))
    return Counter((user, n) for user, last in seen.items() for n in range(1, last + 1))


def has_rows(folder: Path, files: int) -> Callable[[], bool]:
    return lambda: read(folder).total() >= files * RECORDS


def test_killed_slots_and_drivers_leave_each_row_once(start_job: Any, engine: Any, tmp_path: Path) -> None:
    """A slot is killed, then all; and what comes next runs at another parallelism, on another host."""
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    arguments, settings = (str(source), str(output)), {"program": PROGRAM, "interval": "100 ms"}
    job = start_job(tmp_path / "ck", *arguments, master="local[2]", **settings)
    add_files(source, range(10))
    engine.wait_for(has_rows(output, 10), job)
    add_files(source, range(10, 30))
    os.kill(job.slots()[1], signal.SIGKILL)
    job.wait_event("restarted")
    engine.wait_for(has_rows(output, 30), job)
    add_files(source, range(30, 60))
    engine.wait_for(has_rows(output, 31), job)
    job.kill_group()
    job.wait()
    again = start_job(tmp_path / "ck", *arguments, master="threads[3]", parallelism=3, **settings)
    add_files(source, range(60, 70))
    engine.wait_for(has_rows(output, 70), again)
    again.send(signal.SIGTERM)
    assert again.wait(120) == 0, again.story()
    assert read(output) == expected(70)
    remembered = engine.manifests(tmp_path / "ck")[-1]["finished"]["seen"]["files"]
    assert len(remembered) == 70 * 15, "12 bytes for each file, and no split is left"
    assert len(again.slots()) == 3
