"""How much each state has: from headers, and read where they don't tell."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onceflow import (
    BroadcastCtx,
    BroadcastState,
    Ctx,
    Job,
    KeyedBroadcastProcess,
    ValueState,
)
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.folder import savepoint_at
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.state_tables import stored_counts
from onceflow.runtime.state_tables.stored_counts import IN_SEVERAL_FILES, OperatorCounts, counted
from onceflow.runtime.testing.mutation import Mutant, mutated

PROGRAMS = Path(__file__).parents[1] / "changed_programs"
PARTS = [("n", 126, None), ("totals", 118, 173), ("times", 118, 209)]
"""What the golden job's process function has: keys, and entries or elements."""


def of_savepoint(path: Path | str, is_read: bool = False) -> dict[str, OperatorCounts]:
    folder = savepoint_at(str(path))
    taken = folder.read()
    return {each.uid: each for each in counted(folder.files_of(taken), taken.manifest, is_read)}


def of_folder(path: Path, uid: str) -> OperatorCounts:
    store = open_store(str(path))
    manifest = read_log(store).completed()[-1][1]
    (found,) = (each for each in counted(store, manifest) if each.uid == uid)
    return found


def parts(counts: OperatorCounts) -> list[Any]:
    return [(part.name, part.rows, part.items) for part in counts.parts]


@pytest.mark.parametrize(
    ("savepoint", "is_read"), [("golden_savepoint_4", False), ("golden_savepoint_5", True)]
)
def test_the_states_and_timers_of_a_process_function(savepoint: str, is_read: bool) -> None:
    counts = of_savepoint(PROGRAMS / savepoint, is_read)
    process = counts["process"]
    assert parts(process) == PARTS
    assert (process.event_timers, process.processing_timers, process.not_counted) == (173, 0, "")
    assert [part.text for part in process.parts] == [
        "126 keys",
        "118 keys, 173 entries",
        "118 keys, 209 elements",
    ]
    assert parts(counts["reduce"]) == [("record", 126, None)]
    assert {part.rows for part in counts["tumbling"].parts} == {78}
    assert counts["tumbling"].by_name == {}, "aggregates have the rows of their table"
    assert counts["tumbling"].event_timers is None


def check_increments() -> None:
    process = of_savepoint(PROGRAMS / "golden_savepoint_5")["process"]
    assert process.not_counted == IN_SEVERAL_FILES
    assert parts(process) == [(name, None, None) for name, _, _ in PARTS]
    assert {part.text for part in process.parts} == {"not counted"}


def test_increments_are_not_counted_unless_they_are_read() -> None:
    """A later file's row takes the place of an earlier one's, so sums of headers would be too large."""
    check_increments()
    mutant = Mutant("rows of increments are added up", [(stored_counts, "_is_whole", lambda files: True)])
    with mutated(mutant), pytest.raises(AssertionError):
        check_increments()


def test_a_file_that_is_gone_is_told_and_all_else_is_counted(tmp_path: Path) -> None:
    place = shutil.copytree(PROGRAMS / "golden_savepoint_4", tmp_path / "savepoint")
    taken = savepoint_at(str(place)).read()
    for handle in taken.manifest.states:
        for table in handle.tables if handle.uid == "process" else ():
            for path in place.rglob(Path(table.path).name):
                if str(path).endswith(table.path):
                    path.unlink()
    counts = of_savepoint(place)
    assert "is gone or was altered" in counts["process"].not_counted
    assert parts(counts["reduce"]) == [("record", 126, None)]


@dataclass(frozen=True)
class Event:
    user: str
    n: int


class Rules(KeyedBroadcastProcess[str, Event, Event, Event]):
    rules = BroadcastState("rules", str, int)
    n = ValueState("n", int)

    def process(self, record: Event, ctx: Ctx) -> Iterator[Event]:
        self.n.set(record.n)
        yield record

    def process_broadcast(self, rule: Event, ctx: BroadcastCtx) -> None:
        self.rules.put(rule.user, rule.n)


def test_broadcast_state_is_counted_once_and_not_by_subtask(tmp_path: Path) -> None:
    job = Job("job")
    events = job.from_elements(Event("ann", 1), Event("bob", 2), Event("cid", 3))
    rules = job.from_elements(Event("a", 1), Event("b", 2))
    events.key_by("user").connect(rules.broadcast()).process(Rules(), uid="ruled").collect()
    job.run(str(tmp_path), master="threads[2]")
    found = of_folder(tmp_path, "ruled")
    assert {part.name: part.text for part in found.parts} == {"rules": "2 entries", "n": "3 keys"}


def test_rows_of_each_side_of_a_join(tmp_path: Path) -> None:
    job = Job("job")
    left = job.from_elements(*(Event(f"u{n % 3}", n) for n in range(7)))
    right = job.from_elements(*(Event(f"u{n}", n) for n in range(5)))
    left.key_by("user").join(right.key_by("user"), uid="join").collect()
    job.run(str(tmp_path), master="threads[2]")
    found = of_folder(tmp_path, "join")
    assert [(part.name, part.text) for part in found.parts] == [("left", "7 rows"), ("right", "5 rows")]
    mutant = Mutant("each side has all rows", [(stored_counts, "_path", lambda described, part: None)])
    with mutated(mutant):
        assert of_folder(tmp_path, "join").by_name == {"left": 12, "right": 12}
