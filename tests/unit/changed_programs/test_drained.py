"""Jobs that are drained, and those that are started from their savepoints, through the real driver."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from typer.testing import CliRunner

from onceflow.cli import savepoints
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.log import JobFinished, entry_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at
from onceflow.runtime.checkpoint.savepoints.pins import pinned_folder
from onceflow.runtime.checkpoint.savepoints.taking import pin_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.aggregation.aggregates import sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.timers import Timer

FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
LATER = (("ann", 1, 0.5, 9_000), ("ann", 2, 0.5, 500), ("end", 0, 0.0, 99_000))


class Row(NamedTuple):
    user: str
    amount: int
    price: float | None
    ts: int


class Due(NamedTuple):
    user: str
    at: int
    total: int


class Running(KeyedProcess[str, Row, Due]):
    """A sum for each user, and a timer a minute after each record."""

    total = ValueState("total", int)

    def process(self, record: Row, ctx: Ctx, /) -> Iterable[Due]:
        self.total.set((self.total.get() or 0) + record.amount)
        ctx.timers.event_time(record.ts + 60_000)
        return ()

    def on_timer(self, fired: Timer, ctx: Ctx, /) -> Iterable[Due]:
        yield Due(ctx.key, fired.time, self.total.get() or 0)


def running(stream: Any) -> dict[str, Any]:
    return {"out": stream.key_by("user").process(Running(), uid="op")}


def windows(stream: Any) -> dict[str, Any]:
    by_user = stream.key_by("user")
    return {"out": by_user.window(tumbling("10 s")).aggregate(uid="op", total=sum_("amount"))}


def totals(run: Any) -> dict[str, int]:
    return {row["user"]: row["total"] for row in run.visible["out"] if row["window_start"] == 0}


def pinned(folder: Any) -> str:
    saved = pin_savepoint(open_store(str(folder.path)), ManualClock(5))
    return str(Path(folder.path, pinned_folder(saved.savepoint_id)))


def begin(folder: Any, path: Path) -> Any:
    other = type(folder)(path)
    other.rows = folder.rows
    return other


def test_windows_that_were_open_have_fired_and_the_job_has_finished(folder: Any) -> None:
    drained = folder.run(windows, *FIRST, drains=True)
    assert drained.result.outcome is Outcome.FINISHED
    assert totals(drained) == {"ann": 5, "bob": 7}
    [asked] = drained.events.named("stop_requested")
    assert asked["drains"]
    again = folder.run(windows, *LATER)
    assert again.result.outcome is Outcome.FINISHED
    assert not again.visible["out"], "who wants to go on starts from its savepoint"


def test_a_stop_without_a_drain_fires_nothing(folder: Any) -> None:
    stopped = folder.run(windows, *FIRST)
    assert stopped.result.outcome is Outcome.STOPPED
    assert not stopped.visible["out"]


def test_from_a_drained_savepoint_a_job_reads_on_and_event_time_begins_anew(
    folder: Any, tmp_path: Path
) -> None:
    """Windows begin anew too: what comes later for one that has fired is a second result of it."""
    folder.run(windows, *FIRST, drains=True)
    taken = pinned(folder)
    assert savepoint_at(taken).read().manifest.is_drained
    shown = CliRunner().invoke(savepoints.app, ["show", taken]).output
    assert "pinned there, drained" in shown
    other = begin(folder, tmp_path / "other")
    run = other.run(windows, *LATER, start_from=taken)
    assert run.result.outcome is Outcome.STOPPED, "it does not end at once"
    assert totals(run) == {"ann": 3}


def test_state_goes_on_and_timers_have_fired(folder: Any, tmp_path: Path) -> None:
    drained = folder.run(running, *FIRST, drains=True)
    assert {(r["user"], r["at"], r["total"]) for r in drained.visible["out"]} == {
        ("ann", 61_000, 5),
        ("bob", 62_000, 7),
    }
    run = begin(folder, tmp_path / "other").run(running, *LATER, start_from=pinned(folder))
    assert {(r["user"], r["at"], r["total"]) for r in run.visible["out"]} == {
        ("ann", 69_000, 8),
        ("ann", 60_500, 8),
    }


def test_a_drained_job_that_was_killed_before_it_had_noted_its_end_only_ends(folder: Any) -> None:
    """Its records are all that there are, whatever has come since."""
    folder.run(windows, *FIRST, drains=True)
    view = read_log(open_store(str(folder.path)))
    [(position, _)] = [(p, e) for p, e in view.entries.items() if isinstance(e, JobFinished)]
    for file in folder.path.rglob(Path(entry_path(position)).name):
        file.unlink()
    again = folder.run(windows, *LATER)
    assert again.result.outcome is Outcome.FINISHED
    assert totals(again) == {"ann": 5, "bob": 7}, "promised before the kill, and read no further"


def self_join(stream: Any) -> dict[str, Any]:
    other = stream.select(who=pl.col("user"), paid=pl.col("amount"))
    return {"out": stream.key_by("user").interval_join(other.key_by("who"), "-10 s", "10 s", uid="op")}


def test_rows_are_not_late_for_a_join_that_was_drained(folder: Any, tmp_path: Path) -> None:
    """They meet each other, and none of those before: these had no more to wait for."""
    drained = folder.run(self_join, *FIRST, drains=True)
    assert len(drained.visible["out"]) == 2
    run = begin(folder, tmp_path / "other").run(self_join, *LATER, start_from=pinned(folder))
    assert sorted((r["user"], r["amount"], r["paid"]) for r in run.visible["out"]) == [
        ("ann", 1, 1),
        ("ann", 1, 2),
        ("ann", 2, 1),
        ("ann", 2, 2),
        ("end", 0, 0),
    ]
