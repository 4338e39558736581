"""write_state: jobs start from what was written, and what was there before is as it was."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import onceflow
from onceflow import Ctx, Job, KeyedProcess, ListState, MapState, ValueState
from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.log import CheckpointCompleted, encode_entry, entry_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.contracts import Committable
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables import writer
from onceflow.runtime.testing.mutation import Mutant, mutated

PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@dataclass(frozen=True)
class Event:
    user: str
    item: str
    n: int


@dataclass(frozen=True)
class Best:
    item: str
    n: int


@dataclass(frozen=True)
class Told:
    user: str
    best: str
    total: int
    recent: list[int]


class Remember(KeyedProcess[str, Event, Told]):
    best = ValueState("best", Best)
    totals = MapState("totals", str, int)
    recent = ListState("recent", int, ttl="1 d", ttl_time="processing")

    def process(self, record: Event, ctx: Ctx) -> Iterator[Told]:
        best = self.best.get()
        if best is None or best.n < record.n:
            self.best.set(Best(record.item, record.n))
        self.totals.put(record.item, self.totals.get(record.item, 0) + record.n)
        self.recent.add(record.n)
        ctx.timers.processing_time(1 << 52)
        kept = self.best.get()
        assert kept is not None
        yield Told(record.user, kept.item, self.totals.get(record.item, 0), self.recent.get())


def told(start: Path | None, folder: Path, *events: Event) -> list[Told]:
    job = Job("told")
    found = job.from_elements(*events).key_by("user").process(Remember(), uid="remember").collect()
    job.run(str(folder), master="threads[2]", start_from=None if start is None else str(start))
    return list(found)


def test_a_job_starts_from_what_was_written(tmp_path: Path) -> None:
    best = pl.DataFrame({"user": ["ann", "bob"], "item": ["tea", "cup"], "n": [50, 1]})
    totals = pa.table({"user": ["ann", "ann", "cid"], "map_key": ["tea", "cup", "cup"], "value": [100, 7, 9]})
    recent = pa.table({"user": ["ann", "ann"], "position": [1, 0], "value": [2, 1]})
    places = [str(tmp_path / name) for name in ("a", "b", "c")]
    onceflow.write_state(places[0], "remember", "best", best, keys=["user"])
    onceflow.write_state(places[1], "remember", "totals", totals, keys=["user"], kind="map", base=places[0])
    onceflow.write_state(places[2], "remember", "recent", recent, keys=["user"], kind="list", base=places[1])
    events = [Event("ann", "cup", 3), Event("bob", "tea", 4), Event("cid", "cup", 1)]
    found = told(Path(places[2]), tmp_path / "checkpoints", *events)
    assert sorted(found, key=lambda each: each.user) == [
        Told("ann", "tea", 10, [1, 2, 3]),
        Told("bob", "tea", 4, [4]),
        Told("cid", "cup", 10, [1]),
    ]


def test_one_state_of_a_job_is_replaced_and_all_else_is_as_it_was(tmp_path: Path) -> None:
    told(None, tmp_path / "first", Event("ann", "tea", 5), Event("bob", "cup", 6))
    new = pa.table({"user": ["bob", "new"], "map_key": ["cup", "cup"], "value": [1_000, 1]})
    base, target = str(tmp_path / "first"), str(tmp_path / "edited")
    onceflow.write_state(target, "remember", "totals", new, keys=["user"], kind="map", base=base)
    with onceflow.read_state(base) as was, onceflow.read_state(target) as now:
        assert rows(now, "totals") == rows_of(new)
        for state in ("best", "recent", "timers"):
            assert rows(now, state) == rows(was, state), state
        assert (now.job, now.max_parallelism) == (was.job, was.max_parallelism)


def test_a_file_of_the_base_that_is_read_from_its_copy_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(None, tmp_path / "first", Event("ann", "tea", 5))
    capsys.readouterr()
    base = open_store(str(tmp_path / "first"))
    paths = {path for _, manifest in read_log(base).completed() for path in manifest.paths()}
    (path,) = (path for path in paths if path.startswith("state/"))  # the others are rows that are staged
    base.write_copy(path, base.read(path)[:-7])
    new = pa.table({"user": ["ann"], "item": ["cup"], "n": [1]})
    onceflow.write_state(tmp_path / "edited", "remember", "best", new, keys=["user"], base=tmp_path / "first")
    said = capsys.readouterr().err
    assert said.startswith(f"{base.describe(path)} (state ")
    assert said.endswith("; read from its copy\n")


def test_states_of_other_operators_are_copied(tmp_path: Path) -> None:
    base, target = str(PROGRAMS / "golden_savepoint_5"), str(tmp_path / "edited")
    new = pa.table({"user": ["user-023"], "value": [77]})
    onceflow.write_state(target, "process", "n", new, keys=["user"], base=base)
    with onceflow.read_state(base) as was, onceflow.read_state(target) as now:
        assert [(t.operator, t.state) for t in now.tables if t.state != "n"] == [
            (t.operator, t.state) for t in was.tables if t.state != "n"
        ]
        for table in was.tables:
            if (table.operator, table.state) != ("process", "n"):
                assert rows_of(table.read()) == rows_of(now.table(table.operator, table.state).read())
        assert now.table("process", "n").read().to_pylist() == [{"user": "user-023", "value": 77}]
        there = {str(path.relative_to(target)) for path in Path(target, "state").rglob("*.arrows")}
        assert there == now._manifest.paths()


def rows(stored: Any, state: str) -> list[str]:
    return rows_of(stored.table("remember", state).read())


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


KEY = st.tuples(st.sampled_from(["", "a", "ü", None]), st.sampled_from([0, 1, -1, None]))
VALUE = st.none() | st.lists(st.none() | st.integers(-3, 3), max_size=3)
WRITES = st.lists(
    st.tuples(st.sampled_from(["one", "other"]), st.dictionaries(KEY, VALUE, max_size=6)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=40, deadline=None)
@given(WRITES)
def test_writes_on_writes_are_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, dict[Any, Any]]]
) -> None:
    folder, model = tmp_path_factory.mktemp("written"), {}
    base: str | None = None
    for n, (state, values) in enumerate(writes):
        columns = {"user": [key[0] for key in values], "shard": [key[1] for key in values]}
        schema = pa.schema([("user", pa.string()), ("shard", pa.int32()), ("value", pa.list_(pa.int64()))])
        table = pa.table({**columns, "value": list(values.values())}, schema)
        target = str(folder / str(n))
        onceflow.write_state(target, "o", state, table, keys=["user", "shard"], base=base)
        base = target
        model[state] = {key: value for key, value in values.items() if value is not None}
        with onceflow.read_state(target) as stored:
            for name, of in model.items():
                found = stored.table("o", name).read().to_pylist()
                assert {(row["user"], row["shard"]): row["value"] for row in found} == of
                assert len(found) == len(of)


def all_are_new(of: Any, unique: Any) -> Any:
    return np.full(len(unique), -1)


def test_a_write_that_forgets_the_base_is_found(tmp_path: Path) -> None:
    mutant = Mutant("no key is in the base", [(writer, "places", all_are_new)])
    with mutated(mutant), pytest.raises(AssertionError):
        test_states_of_other_operators_are_copied(tmp_path)


def test_a_checkpoint_whose_output_may_not_be_committed_is_no_base(tmp_path: Path) -> None:
    """A job that is started from what was made of it would leave that output out."""
    base, target = tmp_path / "checkpoints", str(tmp_path / "edited")
    shutil.copytree(PROGRAMS / "golden_3", base)
    store, rows = open_store(str(base)), pa.table({"user": ["a"], "value": [77]})
    [(position, manifest)] = read_log(store).completed()
    output = Committable("out", "0", manifest.checkpoint_id, {})
    entry = CheckpointCompleted(replace(manifest, committables=[output]))
    for later in read_log(store).entries.keys() - range(position):
        store.delete([entry_path(later), copy_path(entry_path(later))])
    store.create(entry_path(position), encode_entry(position, entry))
    with pytest.raises(UsageError, match=r"output of checkpoint 2 in .* may not be committed yet: run"):
        onceflow.write_state(target, "process", "n", rows, keys=["user"], base=str(base))
    assert not Path(target).exists()


def test_what_does_not_fit_the_base_is_refused(tmp_path: Path) -> None:
    base, target = str(PROGRAMS / "golden_savepoint_5"), str(tmp_path / "edited")
    numbers = pa.table({"user": [1], "value": [77]})
    with pytest.raises(UsageError, match="the key is user int64, and in the base user string: cast"):
        onceflow.write_state(target, "process", "n", numbers, keys=["user"], base=base)
    texts = pa.table({"user": ["a"], "value": [77]})
    with pytest.raises(UsageError, match="'tumbling' has no state 'n': use 'windows'"):
        onceflow.write_state(target, "tumbling", "n", texts, keys=["user"], base=base)
    with pytest.raises(UsageError, match="has max_parallelism 8, not 128: leave it out"):
        onceflow.write_state(target, "o", "n", texts, keys=["user"], base=base, max_parallelism=128)
    with pytest.raises(UsageError, match=r"rows is a int: give a pyarrow\.Table"):
        onceflow.write_state(target, "o", "n", 5, keys=["user"])
    onceflow.write_state(target, "o", "n", texts, keys=["user"])
    with pytest.raises(UsageError, match="has a savepoint already: give another folder"):
        onceflow.write_state(target, "o", "n", texts, keys=["user"])


@pytest.mark.parametrize("given", [0, -3, 40_000, "8"])
def test_a_number_of_key_groups_that_no_job_can_have_is_refused_before_anything_is_written(
    given: Any, tmp_path: Path
) -> None:
    rows = pa.table({"user": ["ann"], "value": [1]})
    with pytest.raises(UsageError, match=r"max_parallelism=.*from 1 to 32768"):
        onceflow.write_state(str(tmp_path / "new"), "q", "c", rows, keys=["user"], max_parallelism=given)
    assert not (tmp_path / "new").exists()
