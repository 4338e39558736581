"""A job is stopped, a file of its folder is damaged, and it is run again: through the real driver."""

from __future__ import annotations

import errno
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onceflow.cli import checkpoints
from onceflow.cli.app import app
from onceflow.cli.closing import closing_lines
from onceflow.cli.savepoint import take
from onceflow.runtime.checkpoint import listing, verification
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.operators.aggregation.aggregates import sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.testing.mutation import Mutant, mutated

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


# --- Commands that read a copy say so ---


OF_STATE = (cut_the_state, alter_the_state, remove_the_state)
FOUND_BY_SIZE = (cut_the_state, remove_the_state)


def check_is_listed(folder: Any, damage: Callable[[Path], Path], *options: str) -> None:
    """The checkpoint is completed, and its line names the file and the operator; stderr says what to do."""
    folder.run(totals, *FIRST)
    file = damage(folder.path)
    listed = CliRunner().invoke(checkpoints.app, [str(folder.path), "--json", *options])
    assert listed.exit_code == 0
    *earlier, line = json.loads(listed.stdout)
    assert line["status"] == "completed"
    assert all(each["problem"] == "" for each in earlier)
    assert line["problem"].startswith(str(file))
    assert line["problem"].endswith("; read from its copy")
    if damage in OF_STATE:
        assert "of operator 'op'" in line["problem"]
    assert "put the copy, which is below `copies/` under the same path, in the file's place" in listed.stderr


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_verify_says_what_is_read_from_its_copy(damage: Callable[[Path], Path], folder: Any) -> None:
    check_is_listed(folder, damage, "--verify")


@pytest.mark.parametrize("damage", FOUND_BEFORE_SLOTS, ids=lambda damage: damage.__name__)
def test_what_sizes_tell_is_said_without_reading(damage: Callable[[Path], Path], folder: Any) -> None:
    check_is_listed(folder, damage)


def silent(*arguments: Any) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("mutant", "options"),
    [
        (Mutant("reading is silent", [(listing, "read_through", silent)]), ["--verify"]),
        (Mutant("sizes are silent", [(listing, "state_with_copies_only", silent)]), []),
    ],
)
def test_a_list_that_is_silent_is_told(mutant: Mutant, options: list[str], folder: Any) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_is_listed(folder, cut_the_state, *options)


def test_of_a_whole_folder_nothing_is_said(folder: Any) -> None:
    folder.run(totals, *FIRST)
    listed = CliRunner().invoke(checkpoints.app, [str(folder.path), "--json", "--verify"])
    assert {line["problem"] for line in json.loads(listed.stdout)} == {""}
    assert listed.stderr == ""


def check_savepoint(folder: Any, damage: Callable[[Path], Path], target: Path | None, said: Any) -> None:
    last = folder.run(totals, *FIRST).result.last_checkpoint_id
    file = damage(folder.path)
    take(str(folder.path), None if target is None else str(target), last)
    problem = said.readouterr().err
    assert problem.startswith(f"{file} (state ")
    assert problem.endswith("; read from its copy\n")


@pytest.mark.parametrize("damage", OF_STATE, ids=lambda damage: damage.__name__)
def test_a_savepoint_that_is_copied_says_what_is_read_from_its_copy(
    damage: Callable[[Path], Path], folder: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_savepoint(folder, damage, tmp_path / "target", capsys)


@pytest.mark.parametrize("damage", FOUND_BY_SIZE, ids=lambda damage: damage.__name__)
def test_a_savepoint_that_is_pinned_says_of_which_file_only_the_copy_is_there(
    damage: Callable[[Path], Path], folder: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    check_savepoint(folder, damage, None, capsys)


def test_a_pin_that_is_silent_is_told(folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    mutant = Mutant("sizes are silent", [(verification, "state_with_copies_only", silent)])
    with mutated(mutant), pytest.raises(AssertionError):
        check_savepoint(folder, remove_the_state, None, capsys)


# --- Files that this user may not read ---


def forbidden(file: Path) -> Mutant:
    """This file may not be read by this user. (Root runs tests, too, who may read everything.)"""
    opened = LocalStore.open

    def guarded(store: LocalStore, path: str) -> Any:
        if path.endswith(file.name):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(store, path)

    return Mutant("a file that may not be read", [(LocalStore, "open", guarded)])


def test_state_that_may_not_be_read_is_listed_and_said_with_what_it_was_for(folder: Any) -> None:
    folder.run(totals, *FIRST)
    file = state_file(folder.path)
    said = f"{file} (state 'windows' of operator 'op') can't be read: Permission denied"
    with mutated(forbidden(file)):
        listed = CliRunner().invoke(checkpoints.app, [str(folder.path), "--json", "--verify"])
        run = folder.run(totals, *LATER)
    *_, line = json.loads(listed.stdout)
    assert (line["status"], line["problem"]) == ("damaged", f"[Errno 13] {said}")
    assert run.result.outcome is Outcome.FAILED
    assert said in run.result.reason


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_a_command_that_may_not_read_says_so_in_a_sentence(options: list[str], tmp_path: Path) -> None:
    """A link to itself is what not even root can follow."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    failed = CliRunner().invoke(app, [*options, "checkpoints", str(tmp_path / "loop")])
    assert failed.exit_code == 1
    assert isinstance(failed.exception, OSError if options else SystemExit)
    if not options:
        assert "Too many levels of symbolic links" in failed.stderr
        assert "see that this user can use it" in failed.stderr
