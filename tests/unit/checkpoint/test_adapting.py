"""Other uids and other offsets: what of a savepoint is kept under which name, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.savepoints.adapting import adapted
from onceflow.runtime.checkpoint.start_changes import StartChanges
from onceflow.runtime.checkpoint.state_fits import Program
from onceflow.runtime.contracts import SplitProgress, SplitState
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.in_flight import way_uid

STATE = StateDescription("counts", "t", ())
SPLIT = SplitProgress(SplitState("t-0", {"next_offset": 4}), 1_000)
PROGRAM = Program(
    "job", 8, {"src": None, "in": None, "op": STATE, "new": STATE}, sources=frozenset({"src", "in"})
)


def handle(uid: str, rows: int = 3) -> StateHandle:
    return StateHandle(uid, 0, 0, 8, (TableFile("t", "state/x", 0, 10, "crc32:0", (rows,)),))


def manifest(*uids: str, splits: Mapping[str, Any] | None = None, finished: Any = None) -> CheckpointManifest:
    """Checkpoint 7 with the state of these operators, and the position of a source."""
    return CheckpointManifest(
        "job",
        "lineage",
        1,
        7,
        0,
        0,
        1,
        8,
        states=[handle(uid) for uid in uids],
        splits={"src": [SPLIT]} if splits is None else splits,
        operators=dict.fromkeys(uids, STATE),
        finished=finished or {},
    )


def rename(saved: CheckpointManifest, **new_uids: str) -> CheckpointManifest:
    return adapted(saved, StartChanges(new_uids), PROGRAM)[0]


def test_state_and_splits_go_on_under_another_uid() -> None:
    saved = manifest("old", "op", finished={"src": 3})
    made, notes = adapted(saved, StartChanges({"old": "new", "src": "in"}), PROGRAM)
    assert [h.uid for h in made.states] == ["new", "op"]
    assert [h.tables for h in made.states] == [h.tables for h in saved.states]
    assert (made.splits, made.finished) == ({"in": [SPLIT]}, {"in": 3})
    assert made.operators == {"new": STATE, "op": STATE}
    assert [(note.uid, note.change) for note in notes] == [("new", "renamed"), ("in", "renamed")]
    assert "operator 'new' goes on with what 'old' had in checkpoint 7" in notes[0].text


def test_two_may_change_places() -> None:
    made = rename(manifest("new", "op"), new="op", op="new")
    assert [h.uid for h in made.states] == ["op", "new"]


def test_nothing_changes_where_nothing_is_asked_for() -> None:
    saved = manifest("op")
    assert adapted(saved, StartChanges(), PROGRAM) == (saved, [])


@pytest.mark.parametrize(
    ("new_uids", "sentence"),
    [
        (
            {"olt": "new"},
            r"--map-uid olt=new: .* nothing of an operator 'olt' \(did you mean 'old'\?\): .*show",
        ),
        (
            {"old": "nev"},
            r"no operator 'nev' \(did you mean 'new'\?\): look at its uids with `onceflow plan`",
        ),
        ({"old": "op"}, r"has something of 'op', too, .*: give that one another uid as well"),
        (
            {"src": "new"},
            r"it is a source in the savepoint and none in the program: give a source for a source",
        ),
        (
            {"old": "in"},
            r"it is a source in the program and none in the savepoint: give a source for a source",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(new_uids: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        rename(manifest("old", "op"), **new_uids)


def test_rows_in_flight_stay_on_the_ways_that_they_are_on() -> None:
    full, empty = handle(way_uid("src", "old right #2")), handle(way_uid("old", "op"), rows=0)
    other = handle(way_uid("src", "op"))
    saved = manifest("old")
    made = rename(CheckpointManifest(**{**_fields(saved), "states": [empty, other]}), old="new")
    assert [h.uid for h in made.states] == [other.uid]
    with pytest.raises(UsageError, match=r"rows in flight on the way .*--barriers aligned"):
        rename(CheckpointManifest(**{**_fields(saved), "states": [full]}), old="new")


def test_a_source_that_begins_elsewhere_has_no_splits_and_remembers_none() -> None:
    saved = manifest("op", splits={"src": [SPLIT], "in": []}, finished={"src": 3})
    made, [note] = adapted(saved, StartChanges(starts={"src": "earliest"}), PROGRAM)
    assert (made.splits, made.finished, made.states) == ({"in": []}, {}, saved.states)
    assert note.change == "reset"
    assert (
        "begins anew, at 'earliest': how far its 1 splits were read at checkpoint 7 is dropped" in note.text
    )


@pytest.mark.parametrize(
    ("uid", "sentence"),
    [
        ("srt", r"'srt' is not in the program \(did you mean 'src'\?\): name one of its sources, in, src"),
        ("op", r"--reset-offsets op: 'op' is no source: name one of its sources, in, src"),
    ],
)
def test_only_sources_begin_elsewhere(uid: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        adapted(manifest("op"), StartChanges(starts={uid: "latest"}), PROGRAM)


def _fields(saved: CheckpointManifest) -> dict[str, Any]:
    return {name: getattr(saved, name) for name in CheckpointManifest.__slots__}
