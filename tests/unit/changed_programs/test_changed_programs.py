"""A job is stopped, its program is changed, and it is run again on its folder: through the real driver."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import JobFailedError, UsageError
from onceflow.runtime.operators.aggregation.aggregates import (
    AggregateFunction,
    count,
    first,
    max_,
    mean,
    min_,
    sum_,
)
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.operators.windows.begun import BEGUN_BEFORE, Begun
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.testing.mutation import Mutant, mutated

col = pl.col
FIRST = (("ann", 5, 1.5, 1_000), ("bob", 7, 2.5, 2_000))
"""Records before the change: they leave windows open."""
LATER = (("ann", 1, 0.5, 9_000), ("eve", 2, 4.5, 9_500), ("ann", 4, 3.5, 11_000), ("end", 0, 0.0, 99_000))
"""Records after it: they fire these windows, and later ones."""


def windows(window: Any = None, **aggregates: Any) -> Any:
    return lambda s: {
        "out": s.key_by("user").window(window or tumbling("10 s")).aggregate(uid="op", **aggregates)
    }


def by_window(rows: list[dict[str, Any]], *columns: str) -> dict[tuple[str, int], tuple[Any, ...]]:
    return {(row["user"], row["window_start"]): tuple(row[name] for name in columns) for row in rows}


class Widest(AggregateFunction[Any, float, float | None]):
    """A result of no records raises: it must never be asked for one."""

    def create_accumulator(self) -> float:
        return 0.0

    def add(self, value: Any, accumulator: float) -> float:
        return max(accumulator, value.amount)

    def merge(self, accumulator_a: float, accumulator_b: float) -> float:
        return max(accumulator_a, accumulator_b)

    def get_result(self, accumulator: float) -> float | None:
        return 10 / accumulator


def entries(path: Path) -> int:
    return len(read_log(open_store(str(path))).entries)


def test_another_computation_is_refused_at_once_and_nothing_is_written(folder: Any) -> None:
    """It was loaded in silence: sums became maxima of sums."""
    folder.run(windows(total=sum_("amount")), *FIRST)
    before = entries(folder.path)
    run = folder.run(windows(total=max_("amount")), *LATER)
    assert (run.result.outcome, run.result.is_refused) == (Outcome.FAILED, True)
    assert run.result.reason.startswith("operator 'op': its state in checkpoint ")
    assert "has total=sum_('amount'), the program total=max_('amount')" in run.result.reason
    assert [name for name, _ in run.events.all] == ["job_finished"], "no attempt was started or counted"
    assert entries(folder.path) == before
    assert run.visible["out"] == []
    right = folder.run(windows(total=sum_("amount")))
    assert by_window(right.visible["out"], "total")["ann", 0] == (6,)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (windows(total=sum_("amount")), windows(total=sum_("amount"), n=count())),
        (windows(total=sum_("amount"), n=count()), windows(total=sum_("amount"))),
        (windows(total=sum_("amount")), windows(tumbling("5 s"), total=sum_("amount"))),
        (windows(total=sum_("amount")), windows(sliding("10 s", "10 s"), total=sum_("amount"))),
        (windows(total=sum_("amount")), lambda s: {"out": s.with_columns(user=col("amount"))
            .key_by("user").window(tumbling("10 s")).aggregate(uid="op", total=sum_("amount"))}),
    ],
    ids=["added, never null", "removed", "size", "kind of window", "type of the key"],
)  # fmt: skip
def test_what_used_to_loop_or_to_lose_state_is_refused_at_once(folder: Any, before: Any, after: Any) -> None:
    folder.run(before, *FIRST)
    run = folder.run(after, *LATER)
    assert run.result.is_refused
    assert "operator 'op'" in run.result.reason
    assert [name for name, _ in run.events.all] == ["job_finished"]


def test_an_added_aggregate_is_null_where_its_window_was_open_and_right_from_then_on(folder: Any) -> None:
    """It stays so after more checkpoints and restarts of the new program."""
    folder.run(windows(total=sum_("amount")), *FIRST)
    added = windows(
        total=sum_("amount"),
        top=max_(col("amount")),
        low=min_(col("price")),
        mid=mean(col("price")),
        one=first(col("price")),
        own=Widest(),
    )
    run = folder.run(added)
    assert [f["change"] for f in run.events.named("state_changed")] == ["added"] * 5
    assert {f["uid"] for f in run.events.named("state_changed")} == {"op"}
    assert [name for name, _ in run.events.all].index("state_changed") < [
        name for name, _ in run.events.all
    ].index("slots_started")
    folder.run(added, *LATER[:1])
    assert not folder.run(added).events.named("state_changed"), "said once"
    rows = folder.run(added, *LATER[1:]).visible["out"]
    assert by_window(rows, "total", "top", "low", "mid", "one", "own") == {
        ("ann", 0): (6, None, None, None, None, None),
        ("bob", 0): (7, None, None, None, None, None),
        ("eve", 0): (2, 2, 4.5, 4.5, 4.5, 5.0),
        ("ann", 10_000): (4, 4, 3.5, 3.5, 3.5, 2.5),
    }


def test_an_added_aggregate_is_written_plainly_again_once_the_windows_of_before_have_closed(
    folder: Any,
) -> None:
    """Before, its nulls came out in a column that is declared never to have one."""
    folder.run(windows(total=sum_("amount")), *FIRST)
    added, plainly = (windows(total=sum_("amount"), top=top) for top in (max_(col("amount")), max_("amount")))
    folder.run(added)
    said = "operator 'op': windows are open that have no value for aggregate 'top'"
    with pytest.raises(JobFailedError, match=said) as refused:
        folder.run_in_python(plainly)
    assert "run again" not in str(refused.value), "the same program would be refused again"
    folder.run(added, *LATER)
    rows = folder.run(plainly, ("ann", 3, 0.5, 99_500), ("end", 0, 0.0, 120_000)).visible["out"]
    assert by_window(rows, "total", "top")["ann", 90_000] == (3, 3)


def _forget(self: Begun, slots: Any, size: int, aggregates: Any, state: Any) -> None:
    without = [field for field in state.type if field.name != BEGUN_BEFORE]
    columns = [state.field(field.name) for field in without]
    _load(self, slots, size, aggregates, pa.StructArray.from_arrays(columns, fields=without))


_load = Begun.load
FORGETFUL = Mutant("open windows of an added aggregate are forgotten", [(Begun, "load", _forget)])


def test_the_mutant_that_forgets_which_windows_were_open_is_killed(folder: Any) -> None:
    """It sends numbers that lack the records before the change, from the second restart on."""
    added = windows(total=sum_("amount"), top=max_(col("amount")))
    folder.run(windows(total=sum_("amount")), *FIRST)
    with mutated(FORGETFUL):
        folder.run(added, *LATER[:1])
        rows = folder.run(added, *LATER[1:]).visible["out"]
    assert by_window(rows, "total", "top")["ann", 0] == (6, 1), "wrong: it was 5"


def test_an_added_aggregate_of_sliding_windows_is_null_where_a_pane_was_there(folder: Any) -> None:
    window = sliding("10 s", "5 s")
    folder.run(windows(window, total=sum_("amount")), *FIRST)
    added = windows(window, total=sum_("amount"), top=max_(col("amount")), own=Widest())
    folder.run(added, *LATER[:2])
    rows = folder.run(added, *LATER[2:]).visible["out"]
    assert by_window(rows, "total", "top", "own") == {
        ("ann", -5_000): (5, None, None),
        ("bob", -5_000): (7, None, None),
        ("ann", 0): (6, None, None),
        ("bob", 0): (7, None, None),
        ("eve", 0): (2, 2, 5.0),
        ("ann", 5_000): (5, 4, 2.5),
        ("eve", 5_000): (2, 2, 5.0),
        ("ann", 10_000): (4, 4, 2.5),
    }


def test_a_removed_aggregate_is_dropped_if_allowed_and_said(folder: Any) -> None:
    folder.run(windows(total=sum_("amount"), n=count()), *FIRST)
    fewer = windows(total=sum_("amount"))
    assert "aggregate 'n', which the program does not have" in folder.run(fewer).result.reason
    run = folder.run(fewer, *LATER, allow_dropped_state=True)
    assert [f["change"] for f in run.events.named("state_changed")] == ["dropped"]
    assert by_window(run.visible["out"], "total")["ann", 0] == (6,)


def test_a_program_that_runs_itself_says_where_to_begin_and_what_may_be_dropped(folder: Any) -> None:
    """`Job.run` has the options of the command."""
    both = windows(total=sum_("amount"), n=count())
    folder.run(both, *FIRST)
    older = read_log(open_store(str(folder.path))).completed()[-1][1].checkpoint_id
    folder.run(both, ("ann", 100, 1.0, 3_000), retained=100)
    fewer = windows(total=sum_("amount"))
    with pytest.raises(UsageError, match="checkpoint 2 has aggregate 'n', which the program does not have"):
        folder.run_in_python(fewer)
    with pytest.raises(UsageError, match="checkpoint 999"):
        folder.run_in_python(fewer, start_from=999)
    folder.rows = [*FIRST, *LATER]
    run = folder.run_in_python(fewer, start_from=older, allow_dropped_state=True)
    assert run.result.outcome is Outcome.FINISHED, run.result.reason
    assert [f["change"] for f in run.events.named("state_changed")] == ["dropped"]
    assert by_window(run.visible["out"], "total")["ann", 0] == (6,)


def test_an_operator_that_is_gone_is_dropped_if_allowed_and_said(folder: Any) -> None:
    folder.run(windows(total=sum_("amount")), *FIRST)

    def renamed(s: Any) -> Any:
        named = s.key_by("user").window(tumbling("10 s")).aggregate(uid="totals", total=sum_("amount"))
        return {"new-out": named}

    refused = folder.run(renamed).result
    assert refused.is_refused
    assert "state of operator 'op', which is not in the program" in refused.reason
    run = folder.run(renamed, *LATER, allow_dropped_state=True)
    said = {(f["uid"], f["change"]) for f in run.events.named("state_changed")}
    assert said == {("op", "dropped"), ("out", "dropped")}
    assert by_window(run.visible["new-out"], "total")["ann", 10_000] == (4,)


@dataclass
class Row:
    user: str
    amount: int
    price: float
    ts: int


@dataclass
class Seen:
    user: str
    n: int


class Counter(KeyedProcess[str, Row, Seen]):
    n = ValueState("n", int)

    def process(self, record: Row, ctx: Any) -> Any:
        self.n.set((self.n.get() or 0) + 1)
        ctx.timers.event_time(record.ts + 1_000_000)
        yield Seen(record.user, self.n.get() or 0)


class Renamed(Counter):
    n = ValueState("times", int)


def test_a_state_of_a_process_is_dropped_if_allowed_and_a_new_one_begins_empty(folder: Any) -> None:
    def process(of: Any) -> Any:
        return lambda s: {"out": s.key_by("user").process(of, uid="op")}

    folder.run(process(Counter()), *FIRST)
    assert "state 'n', which the program does not have" in folder.run(process(Renamed())).result.reason
    run = folder.run(process(Renamed()), ("ann", 1, 1.0, 3_000), allow_dropped_state=True)
    assert sorted(f["change"] for f in run.events.named("state_changed")) == ["added", "dropped"]
    assert run.visible["out"][-1] == {"user": "ann", "n": 1}


@dataclass
class Wide:
    user: str
    n: int | None


def total(a: Any, b: Any) -> Any:
    return type(a)(a.user, None if a.n is None or b.n is None else a.n + b.n)


def test_what_may_be_null_from_now_on_is_kept_and_said_and_the_other_way_round_is_refused(
    folder: Any,
) -> None:
    def reduce(record: Any) -> Any:
        mapped: Any = lambda row: record(row.user, row.amount or (None if record is Wide else 0))  # noqa: E731
        return lambda s: {"out": s.map(mapped, returns=record).key_by("user").reduce(total, uid="op")}

    folder.run(reduce(Seen), *FIRST)
    run = folder.run(reduce(Wide), ("ann", 1, 0.5, 9_000), ("bob", 0, 0.5, 9_000))
    [said] = run.events.named("state_changed")
    assert (said["uid"], said["change"]) == ("op", "widened")
    assert "'op': the record so far may have null where it had none in checkpoint" in said["text"]
    assert run.visible["out"][-2:] == [{"user": "ann", "n": 6}, {"user": "bob", "n": None}]
    assert not folder.run(reduce(Wide)).events.named("state_changed"), "said once"
    assert "n: int64 not null" in folder.run(reduce(Seen)).result.reason


def last_seen(record: Any) -> Any:
    """It keeps the last record of each key, and gives the one before."""

    class Last(KeyedProcess[str, Row, Any]):
        last = ValueState("last", record)

        def process(self, value: Row, ctx: Any) -> Any:
            yield self.last.get() or record(value.user, 0)
            self.last.set(record(value.user, value.amount or (None if record is Wide else 0)))

    return lambda s: {"out": s.key_by("user").process(Last(), returns=record, uid="op")}


def longest_of(record: Any) -> Any:
    """An aggregate of the user's that keeps a record."""

    class Longest(AggregateFunction[Any, Any, Any]):
        def create_accumulator(self) -> Any:
            return record("", 0)

        def add(self, value: Any, accumulator: Any) -> Any:
            return record(value.user, max(accumulator.n or 0, value.amount))

        def merge(self, accumulator_a: Any, accumulator_b: Any) -> Any:
            return accumulator_a

        def get_result(self, accumulator: Any) -> int:
            return accumulator.n or 0

    Longest.create_accumulator.__annotations__["return"] = record
    return windows(n=Longest())


@pytest.mark.parametrize(
    ("program", "results"),
    [(last_seen, [("ann", 5), ("ann", None), ("end", 0)]), (longest_of, [("ann", 5), ("bob", 7)])],
)
def test_what_a_state_or_an_aggregate_of_the_users_keeps_may_be_null_from_now_on(
    folder: Any, program: Any, results: list[tuple[str, int | None]]
) -> None:
    folder.run(program(Seen), *FIRST)
    run = folder.run(program(Wide), ("ann", 0, 0.5, 9_000), ("ann", 3, 0.5, 9_000), ("end", 0, 0.5, 11_000))
    assert [said["change"] for said in run.events.named("state_changed")] == ["widened"]
    assert [(row["user"], row["n"]) for row in run.visible["out"]][-len(results) :] == results


# --- Written by an onceflow that described nothing ----------------------------------------------------


def larger(a: Row, b: Row) -> Row:
    return a if a.amount >= b.amount else b


def smaller(a: Row, b: Row) -> Row:
    return a if a.amount < b.amount else b


TOTALS = {"total": sum_("amount"), "n": count(), "m": mean("amount"), "f": first("price")}


def everything(s: Any, reducer: Any = larger, window: Any = None, process: Any = None, **totals: Any) -> Any:
    """The program that wrote the folder `written_before`, or one that is changed."""
    keyed, made = s.key_by("user"), totals or TOTALS
    return {
        "out-tumbling": keyed.window(window or tumbling("10 s")).aggregate(uid="tumbling", **made),
        "out-sliding": keyed.window(sliding("10 s", "5 s")).aggregate(uid="sliding", top=max_("amount")),
        "out-best": keyed.window(tumbling("10 s")).reduce(larger, uid="best"),
        "out-reduce": keyed.reduce(reducer, uid="reduce"),
        "out-process": keyed.process(process or Counter(), uid="process"),
    }  # fmt: skip


@pytest.fixture
def old_folder(folder: Any) -> Any:
    """The state of ann 5, 1.5 at 1 s, ann 3, 2.5 at 11 s and bob 7, null at 12 s; the first window has
    fired."""
    shutil.copytree(Path(__file__).parent / "written_before", folder.path)
    folder.rows += [("ann", 5, 1.5, 1_000), ("ann", 3, 2.5, 11_000), ("bob", 7, None, 12_000)]
    return folder


def test_a_checkpoint_without_descriptions_is_restored_and_said(old_folder: Any) -> None:
    run = old_folder.run(everything, ("ann", 1, 0.5, 13_000), ("end", 0, 0.0, 30_000))
    said = run.events.named("state_changed")
    assert {f["uid"] for f in said} == {"tumbling", "sliding", "best", "reduce", "process"}
    assert {f["change"] for f in said} == {"unchecked"}
    rows = by_window(run.visible["out-tumbling"], *TOTALS)
    assert rows == {
        ("ann", 0): (5, 1, 5.0, 1.5),  # what the old run had promised
        ("ann", 10_000): (4, 2, 2.0, 2.5),
        ("bob", 10_000): (7, 1, 7.0, None),
    }
    assert by_window(run.visible["out-sliding"], "top")["ann", 5_000] == (3,)
    assert {"user": "bob", "amount": 7, "price": None, "ts": 12_000} in run.visible["out-best"]
    assert run.visible["out-reduce"][3] == {"user": "ann", "amount": 5, "price": 1.5, "ts": 1_000}
    assert run.visible["out-process"][3] == {"user": "ann", "n": 3}
    assert not old_folder.run(everything).events.named("state_changed"), "the new checkpoint is described"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({**TOTALS, "window": tumbling("5 s")}, "'tumbling'.* windows of 10000 ms, the program"),
        ({"total": sum_("amount")}, "'tumbling'.*has aggregate '[fmn]', which the program does not have"),
        ({**TOTALS, "more": count()}, "'tumbling'.*'more' is new.*can't be null"),
        ({**TOTALS, "m": mean("price")}, "'tumbling'.*'m' as struct<count: int64, sum_high"),
        ({"process": Renamed()}, "'process'.*has state 'n', which the program does not have"),
    ],
    ids=["windows", "removed", "added", "retyped", "state"],
)
def test_of_a_checkpoint_without_descriptions_names_and_types_are_compared(
    old_folder: Any, changes: Any, sentence: str
) -> None:
    run = old_folder.run(lambda s: everything(s, **changes))
    assert run.result.is_refused
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(run.result.reason)


# --- The command ----------------------------------------------------------------------------------------

PROGRAM = """
import pyarrow as pa
from onceflow import Job, WatermarkStrategy, max_, tumbling


class Source:
    schema = pa.schema([pa.field(n, t, nullable=False) for n, t in
                        [("user", pa.string()), ("amount", pa.int64()), ("ts", pa.int64())]])
    record_type, is_bounded, discovery_interval_ms = None, False, None
    def open_enumerator(self, job, clock): return self
    def close(self): pass


class Sink:
    def check(self, schema, uid): pass


def build(argv):
    job = Job("job", max_parallelism=8)
    rows = job.source(Source(), watermarks=WatermarkStrategy("ts", 0), uid="src")
    windows = rows.key_by("user").window(tumbling("10 s"))
    windows.aggregate(uid="op", total=max_("amount")).sink_to(Sink(), uid="out")
    return job
"""


def test_the_command_ends_with_one_sentence_and_exit_code_2(folder: Any, tmp_path: Path) -> None:
    folder.run(windows(total=sum_("amount")), *FIRST)
    (tmp_path / "job.py").write_text(PROGRAM)
    onceflow = [sys.executable, "-c", "from onceflow.cli.app import main; main()"]
    run = [*onceflow, "run", "job.py:build", "--master", "threads[1]", "--checkpoint-dir", str(folder.path)]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 2, ended.stderr
    [sentence] = ended.stderr.strip().splitlines()
    assert "has total=sum_('amount'), the program total=max_('amount')" in sentence
