"""Function objects in a job on threads: opened once for each subtask and attempt, closed at every end."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow import Job
from onceflow.runtime.errors import JobFailedError, OptionError
from onceflow.runtime.report import Silent
from onceflow.testing import harness, run, simulate
from tests.unit.functions.function_objects import Filter, Item, Map, Noting, Process, every_kind, noted

KINDS = {
    "Map",
    "Filter",
    "FlatMap",
    "Batches",
    "Key",
    "Process",
    "Reduce",
    "Foreach",
    "Count",
    "WindowReduce",
}


class Events(Silent):
    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any]]] = []

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.events.append((name, fields))


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVES_TOKEN", "hunter2")


def lives(notes: Path) -> dict[tuple[str, int, int], list[str]]:
    """What happened to each instance, by function, attempt and subtask."""
    found: dict[tuple[str, int, int], list[str]] = defaultdict(list)
    for each in noted(notes):
        found[each["name"], each["attempt"], each["subtask"]].append(each["what"])
    return found


def test_every_kind_of_function_object_has_a_life(tmp_path: Path) -> None:
    job, notes = every_kind(tmp_path / "notes"), tmp_path / "notes"
    job.run(master="threads[2]", parallelism=2)
    found = lives(notes)
    assert {(name, subtask) for name, _, subtask in found} == {(n, s) for n in KINDS for s in (0, 1)}
    for whose, what in found.items():
        assert what in (["open", "called", "close"], ["open", "close"]), whose
    called = Counter(name for (name, _, _), what in found.items() if "called" in what)
    assert set(called) == KINDS
    of_object = defaultdict(set)
    for each in noted(notes):
        of_object[each["name"], each["subtask"]].add(
            (each["object"], each["name"] == "Foreach" or each["thread"])
        )
    assert all(len(objects) == 1 for objects in of_object.values()), "one instance, one thread"


def test_a_failed_attempt_is_closed_and_the_next_opens_new_ones(tmp_path: Path) -> None:
    notes, events = tmp_path / "notes", Events()
    job = every_kind(notes, fails_at=7, close_fails=True)
    with pytest.raises(JobFailedError) as error:
        job.run(master="threads[2]", parallelism=2, restart="fixed:1 ms:1", reporter=events)
    found = lives(notes)
    assert {attempt for _, attempt, _ in found} == {1, 2}
    assert all(what.count("open") == what.count("close") == 1 for what in found.values())
    assert all(what[-1] == "close" for what in found.values())
    # The first error is what is said of the job; a close that raised is told beside it.
    assert "operator 'map': Map failed on the record" in str(error.value)
    warnings = [fields["reason"] for name, fields in events.events if name == "warning"]
    assert any(
        "operator 'map': Noting.close failed" in w and "the connection was reset" in w for w in warnings
    )
    assert events.events[-1][0] == "job_finished"
    # A secret is in nothing that is told.
    assert "ValueError: with ***" in str(error.value)
    assert "hunter2" not in f"{error.value} {events.events}"


def test_parameters_are_checked_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = every_kind(tmp_path / "notes")
    with pytest.raises(OptionError, match="parameter 'plus' is 'x': expected int"):
        job.run(master="threads[1]", params={"plus": "x"})
    monkeypatch.delenv("LIVES_TOKEN")
    with pytest.raises(OptionError, match="secret 'token' is missing or empty: set LIVES_TOKEN or"):
        job.run(master="threads[1]")
    assert not (tmp_path / "notes").exists()
    assert "hunter2" not in job._repr_html_()


def test_a_log_line_names_the_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Logging(Noting):
        def __call__(self, item: Item) -> Item:
            self.ctx.log.info("saw %d", item.n)
            return item

    job = Job("logs")
    job.from_elements(Item("a", 5)).map(Logging(tmp_path / "notes"), uid="look").collect()
    with caplog.at_level(logging.INFO, "onceflow.functions"):
        job.run(master="threads[1]")
    (line,) = [r.getMessage() for r in caplog.records if r.name == "onceflow.functions"]
    assert line.startswith("[logs look 0 ")
    assert line.endswith("] saw 5")


def test_in_tests_of_a_job_too(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    job = every_kind(notes)
    with run(job, parallelism=2, params={"plus": 100}, from_elements=[Item("a", 1)]) as running:
        assert running.records("processed", Item) == [Item("a", 101)]
        running.crash()  # nobody closes what a killed process has
        running.finish()
    found = lives(notes)
    assert all(
        what.count("open") == what.count("close") for (_, attempt, _), what in found.items() if attempt > 1
    )
    assert not any("close" in what for (_, attempt, _), what in found.items() if attempt == 1)


def test_the_harness_opens_and_closes(tmp_path: Path) -> None:
    with harness(Process(tmp_path / "notes"), key="user", params={"token": "x"}) as process:
        assert process.element(Item("a", 1)).out == [Item("a", 1)]
        assert [each["what"] for each in noted(tmp_path / "notes")] == ["open", "called"]
    assert [each["what"] for each in noted(tmp_path / "notes")] == ["open", "called", "close"]


def test_a_simulation_opens_an_instance_for_each_attempt(tmp_path: Path) -> None:
    """An instance that is opened twice says so itself, and one that is not opened has no parameter."""
    job = Job("simulated", params={"plus": 1, "token": "x"})
    items = [Item("a", n) for n in range(6)]
    mapped = job.from_elements(*items).map(Map(tmp_path / "notes"), uid="map")
    mapped.filter(Filter(tmp_path / "notes"), uid="filter").collect(uid="out")
    assert simulate(job, {"from_elements": items}, seeds=10).rows == {"out": 6}
    assert {each["attempt"] for each in noted(tmp_path / "notes")} > {1, 2}
