"""Starts from a savepoint with other uids and other offsets, through the real driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceflow.runtime.checkpoint.log import JobCreated, encode_entry, entry_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at
from onceflow.runtime.checkpoint.savepoints.pins import pinned_folder
from onceflow.runtime.checkpoint.savepoints.taking import pin_savepoint
from onceflow.runtime.checkpoint.start_changes import StartChanges
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.aggregation.aggregates import sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 9_000), ("end", 0, 0.0, 99_000))
ONCE, TWICE = {"ann": 6, "bob": 7}, {"ann": 11, "bob": 14}


def windows(uid: str = "op") -> Any:
    return lambda s: {
        "out": s.key_by("user").window(tumbling("10 s")).aggregate(uid=uid, total=sum_("amount"))
    }


def totals(run: Any) -> dict[str, int]:
    assert not run.result.is_refused, run.result
    return {row["user"]: row["total"] for row in run.visible["out"] if row["window_start"] == 0}


@pytest.fixture
def taken(folder: Any) -> str:
    """A savepoint of a job that was stopped with two windows open."""
    last = folder.run(windows(), *FIRST).result.last_checkpoint_id
    saved = pin_savepoint(open_store(str(folder.path)), ManualClock(5), last)
    return str(Path(folder.path, pinned_folder(saved.savepoint_id)))


@pytest.fixture
def other(folder: Any, taken: str, tmp_path: Path) -> Any:
    made = type(folder)(tmp_path / "other")
    made.rows = folder.rows
    return made


def test_a_renamed_operator_keeps_its_state_at_every_start(other: Any, taken: str) -> None:
    options = {"start_from": taken, "map_uid": (("op", "totals"),)}
    first = other.run(windows("totals"), **options)
    assert not first.visible["out"]
    [told] = first.events.named("started_from_savepoint")
    assert (told["kept"], told["new"], told["dropped"]) == (["src", "totals"], [], [])
    assert [note["change"] for note in first.events.named("state_changed")] == ["renamed"]
    second = other.run(windows("totals"), *LATER, **options)
    assert totals(second) == ONCE, "the same command goes on"
    assert not second.events.named("started_from_savepoint")
    assert not other.run(windows("totals")).result.is_refused, "its uids are its own, without the option too"


def test_a_source_begins_elsewhere_once(other: Any, taken: str) -> None:
    """What the state has counted is read again, as was asked for; after a restart it is not."""
    options = {"start_from": taken, "reset_offsets": {"src": "start"}}
    first = other.run(windows(), **options)
    [told] = first.events.named("started_from_savepoint")
    assert (told["kept"], told["reset"]) == (["op"], ["src"])
    assert totals(other.run(windows(), *LATER, **options)) == TWICE


def test_what_a_job_began_with_can_not_change(other: Any, taken: str) -> None:
    other.run(windows("totals"), start_from=taken, map_uid=(("op", "totals"),))
    reason = other.run(windows("totals"), start_from=taken, reset_offsets={"src": "start"}).result.reason
    assert "was started with --map-uid op=totals, and what it began with can't change" in reason
    assert totals(other.run(windows("totals"), *LATER, start_from=taken)) == ONCE


def test_a_start_that_was_cut_off_goes_on_as_it_began(other: Any, taken: str) -> None:
    changes = StartChanges({"op": "totals"})
    store, savepoint_id = open_store(str(other.path)), savepoint_at(taken).read().savepoint_id
    store.create(entry_path(0), encode_entry(0, JobCreated("job", "lineage", 1, savepoint_id, changes)))
    refused = other.run(windows("totals"))
    assert "name the savepoint again with --from --map-uid op=totals" in refused.result.reason
    refused = other.run(windows(), start_from=taken)
    assert "was started with --map-uid op=totals" in refused.result.reason
    assert totals(other.run(windows("totals"), *LATER, start_from=taken, map_uid=(("op", "totals"),))) == ONCE


def test_what_does_not_fit_leaves_the_folder_as_it_was(other: Any, taken: str) -> None:
    for options in ({"map_uid": (("op", "out"),)}, {"reset_offsets": {"src": "earliest"}}):
        refused = other.run(windows(), start_from=taken, **options)
        assert refused.result.is_refused, options
    assert "this source begins where the program says only: write src=start" in refused.result.reason
    assert not (other.path / "log").exists()
    assert len(read_log(open_store(str(other.path))).entries) == 0


def test_a_job_ends_where_it_is_told_and_goes_on_to_there_after_a_restart(other: Any, taken: str) -> None:
    """The end is that of the folder: what is told later, or comes later, changes nothing."""
    more = [("ann", 100, 1.5, 3_000), ("bob", 1_000, 2.5, 4_000)]
    done = other.run(windows(), *more, start_from=taken, until=3)
    assert totals(done) == {"ann": 105, "bob": 7}
    again = other.run(windows(), *LATER, start_from=taken, until=4)
    assert totals(again).get("bob", 7) == 7, "what was promised may be shown again here, and no more"
