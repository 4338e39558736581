"""A job is stopped, a file of its folder is damaged, and it is run again: through the real driver."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onceflow.cli.closing import closing_lines
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.operators.aggregation.aggregates import sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 9_000), ("end", 0, 0.0, 99_000))


def totals(stream: Any) -> dict[str, Any]:
    windows = stream.key_by("user").window(tumbling("10 s"))
    return {"out": windows.aggregate(uid="op", total=sum_("amount"))}


def newest(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The entry of the newest checkpoint, and its manifest."""
    for file in sorted((folder / "log").glob("[0-9]*.json"), reverse=True):
        entry = json.loads(file.read_text())["entry"]
        if entry["kind"] == "checkpoint_completed":
            return file, entry["manifest"]
    raise AssertionError("no checkpoint")


def state_file(folder: Path) -> Path:
    _, manifest = newest(folder)
    return next(folder / table["path"] for handle in manifest["states"] for table in handle["tables"])


def flip_an_offset(folder: Path) -> Path:
    """Still valid JSON."""
    file, _ = newest(folder)
    altered, count = re.subn(rb'"next_offset":2', b'"next_offset":0', file.read_bytes())
    assert count == 1
    file.write_bytes(altered)
    return file


def cut_the_entry(folder: Path) -> Path:
    file, _ = newest(folder)
    file.write_bytes(file.read_bytes()[:-7])
    return file


def cut_the_state(folder: Path) -> Path:
    file = state_file(folder)
    file.write_bytes(file.read_bytes()[:-7])
    return file


def alter_the_state(folder: Path) -> Path:
    file = state_file(folder)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    return file


def remove_the_state(folder: Path) -> Path:
    file = state_file(folder)
    file.unlink()
    return file


DAMAGE = (flip_an_offset, cut_the_entry, cut_the_state, alter_the_state, remove_the_state)
FOUND_BEFORE_SLOTS = [damage for damage in DAMAGE if damage is not alter_the_state]
"""What the driver sees; the content of state is the slots' to check."""


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_newest_checkpoint_is_gone_on_from_and_said(
    damage: Callable[[Path], Path], folder: Any
) -> None:
    """A flipped offset was restored in silence: records were counted twice."""
    folder.run(totals, *FIRST)
    file = damage(folder.path)
    run = folder.run(totals, *LATER)
    assert {(row["user"], row["total"]) for row in run.visible["out"]} == {("ann", 6), ("bob", 7)}
    said = [fields["message"] for name, fields in run.events.all if name == "damage_healed"]
    assert said
    assert all(str(file) in message for message in said)


@pytest.mark.parametrize("damage", FOUND_BEFORE_SLOTS, ids=lambda damage: damage.__name__)
def test_without_a_copy_it_fails_at_once_and_says_what_is_good(
    damage: Callable[[Path], Path], folder: Any
) -> None:
    folder.run(totals, *FIRST)
    _, manifest = newest(folder.path)
    file = damage(folder.path)
    shutil.rmtree(folder.path / "copies")
    run = folder.run(totals, *LATER)
    assert run.result.outcome is Outcome.FAILED
    assert "attempt_failed" not in [name for name, _ in run.events.all], "it is fatal at once"
    assert run.visible["out"] == []
    reason, again, good = closing_lines(run.result, str(folder.path))
    assert str(file) in reason
    assert again.startswith("the same command meets the damage again")
    assert str(manifest["checkpoint_id"]) not in re.findall(r"\d+", good.replace(str(folder.path), ""))
