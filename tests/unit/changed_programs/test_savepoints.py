"""Savepoints through the real driver: taken of a folder, and started from in others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.checkpoint.log import CheckpointCompleted, JobCreated, encode_entry, entry_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.savepoint import (
    RECORD_PATH,
    committed_checkpoint,
    decode_savepoint,
    read_savepoint,
    take_savepoint,
)
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.operators.aggregation.aggregates import max_, sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 9_000), ("end", 0, 0.0, 99_000))


def windows(**aggregates: Any) -> Any:
    return lambda s: {"out": s.key_by("user").window(tumbling("10 s")).aggregate(uid="op", **aggregates)}


def totals(run: Any) -> dict[str, int]:
    return {row["user"]: row["total"] for row in run.visible["out"] if row["window_start"] == 0}


@pytest.fixture
def taken(folder: Any, tmp_path: Path) -> Path:
    """A savepoint of a job that was stopped with two windows open; it was moved since."""
    last = folder.run(windows(total=sum_("amount")), *FIRST).result.last_checkpoint_id
    store, first = open_store(str(folder.path)), tmp_path / "first"
    take_savepoint(store, open_store(str(first)), ManualClock(), last)
    return Path(shutil.move(first, tmp_path / "moved"))


def begin(folder: Any, path: Path) -> Any:
    """Another checkpoint folder with the same input."""
    other = type(folder)(path)
    other.rows = folder.rows
    return other


def test_two_jobs_go_on_from_one_savepoint_and_are_nobodys_but_their_own(
    folder: Any, taken: Path, tmp_path: Path
) -> None:
    folder.rows += LATER
    lineages = set()
    for name in ("a", "b"):
        run = begin(folder, tmp_path / name).run(windows(total=sum_("amount")), start_from=str(taken))
        assert totals(run) == {"ann": 6, "bob": 7}, "what was read before the savepoint counts once"
        created = read_log(open_store(str(tmp_path / name))).entries[0]
        assert isinstance(created, JobCreated)
        lineages.add(created.lineage)
    lineages.add(read_savepoint(open_store(str(taken))).manifest.lineage)
    assert len(lineages) == 3, "transactional ids and ledgers are made of it"


def test_the_same_command_goes_on_and_does_not_begin_again(folder: Any, taken: Path, tmp_path: Path) -> None:
    other = begin(folder, tmp_path / "other")
    first = other.run(windows(total=sum_("amount")), start_from=str(taken))
    assert not first.visible["out"]
    second = other.run(windows(total=sum_("amount")), *LATER, start_from=str(taken))
    assert totals(second) == {"ann": 6, "bob": 7}
    shutil.rmtree(taken)
    assert other.run(windows(total=sum_("amount"))).result.last_checkpoint_id, "it has its own copy"


def test_a_folder_that_has_another_job_is_refused(folder: Any, taken: Path) -> None:
    refused = folder.run(windows(total=sum_("amount")), start_from=str(taken))
    assert refused.result.is_refused
    assert "a savepoint starts a folder of its own" in refused.result.reason


def test_another_computation_is_refused_before_the_folder_is_touched(
    folder: Any, taken: Path, tmp_path: Path
) -> None:
    other = begin(folder, tmp_path / "other")
    refused = other.run(windows(total=max_("amount")), start_from=str(taken))
    assert refused.result.is_refused
    assert "'op'" in refused.result.reason
    assert not (tmp_path / "other" / "log").exists()
    allowed = other.run(
        windows(highest=max_("price")), *LATER, start_from=str(taken), allow_dropped_state=True
    )
    changes = {e["change"] for e in allowed.events.named("state_changed")}
    assert changes == {"added", "dropped"}


def test_a_start_that_was_cut_off_needs_its_savepoint_again(folder: Any, taken: Path, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "other"))
    savepoint_id = read_savepoint(open_store(str(taken))).savepoint_id
    store.create(entry_path(0), encode_entry(0, JobCreated("job", "lineage", 1, savepoint_id)))
    other = begin(folder, tmp_path / "other")
    refused = other.run(windows(total=sum_("amount")))
    assert "its start was cut off: name the savepoint again with --from" in refused.result.reason
    assert totals(other.run(windows(total=sum_("amount")), *LATER, start_from=str(taken))) == {
        "ann": 6,
        "bob": 7,
    }


def test_a_savepoint_is_never_replaced_and_damage_is_found(folder: Any, taken: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has a savepoint already"):
        take_savepoint(open_store(str(folder.path)), open_store(str(taken)), ManualClock())
    with pytest.raises(UsageError, match=r"is no savepoint: it has no savepoint\.json"):
        read_savepoint(open_store(str(folder.path)))
    [state] = (taken / "state").rglob("*.arrows")
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    for file in taken.rglob(state.name):  # and its copy
        file.write_bytes(content)
    failed = begin(folder, tmp_path / "other").run(windows(total=sum_("amount")), start_from=str(taken))
    assert "was altered" in failed.result.reason
    record = (taken / RECORD_PATH).read_bytes()
    with pytest.raises(CorruptCheckpointError, match="was altered"):
        decode_savepoint(record.replace(b'"job":"job"', b'"job":"jab"'), "savepoint.json")


def test_only_what_is_known_to_be_committed_is_taken(folder: Any) -> None:
    """The output of the latest checkpoint of a job that was killed may not be there yet."""
    folder.run(windows(total=sum_("amount")), *FIRST)
    view = read_log(open_store(str(folder.path)))
    position, latest = view.completed()[-1]
    waiting = replace(latest, committables=(Committable("out", "0", latest.checkpoint_id, {}),))
    view.entries[position] = CheckpointCompleted(waiting)
    before = view.completed()[-2][1]
    store = MemoryStore()
    assert committed_checkpoint(store, view).checkpoint_id == before.checkpoint_id
    assert committed_checkpoint(store, view, latest.checkpoint_id) == waiting, "the caller knows"
    with pytest.raises(UsageError, match="may not be committed yet"):
        committed_checkpoint(store, view, before.checkpoint_id)
    view.entries[position] = CheckpointCompleted(replace(latest, committables=()))
    assert committed_checkpoint(store, view).checkpoint_id == latest.checkpoint_id


def test_what_is_in_it_is_shown(taken: Path, capsys: Any) -> None:
    from onceflow.cli.savepoints import savepoints

    savepoints(str(taken))
    shown = capsys.readouterr().out
    assert "of job 'job'" in shown
    assert "total=sum_('amount') int64" in shown
    savepoints(str(taken), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["positions"] == {"src": {"all": {"next_offset": 2}}}
    assert [state["rows"] for state in told["states"] if state["uid"] == "op"] == [2]
