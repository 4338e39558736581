"""What is followed is of one checkpoint at a time, and the earlier one answers until the next is whole."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from onceflow import read_state
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.state_tables import followed as module
from onceflow.runtime.state_tables.followed import FollowedState, View
from onceflow.runtime.state_tables.indexed_rows import IndexedRows
from onceflow.runtime.state_tables.reader import StoredState, UnknownTableError
from onceflow.runtime.testing.mutation import Mutant, mutated

PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints"))


def test_it_answers_what_read_state_says(folder: str) -> None:
    followed = FollowedState(folder, [("process", "n")])
    assert list(followed.view.tables) == [("process", "n")]
    found = followed.find("process", "totals", ["nobody", "user-023"])
    with read_state(folder) as stored:
        assert found.rows == stored.table("process", "totals").read(["user-023"])
        assert (found.checkpoint_id, found.completed_ms) == (stored.checkpoint_id, stored.completed_ms)
        assert found.offsets["src"] == stored.table("src").read().to_pylist()
    assert found.places.tolist() == [1]
    assert not followed.refresh()
    followed.close()


def test_what_is_not_there(folder: str) -> None:
    followed = FollowedState(folder)
    with pytest.raises(UnknownTableError, match="did you mean 'process'"):
        followed.find("proces", "n", ["a"])
    with pytest.raises(UsageError, match="has no key: read it with"):
        followed.find("src", "offsets", ["a"])
    assert followed.key_columns("process", "n").names == ["user"]
    followed.close()


NAME = ("process", "totals")


def one_behind(folder: str) -> FollowedState:
    """What has followed to checkpoint 1, whose table was empty."""
    followed = FollowedState(folder, [NAME])
    stored, index = followed.view.stored, followed.view.tables[NAME]
    earlier = dataclasses.replace(stored._manifest, checkpoint_id=1)
    empty = IndexedRows(index._rows.slice(0, 0), index.key_columns, "it")
    followed._view = View(StoredState(stored._store, earlier, "it"), {}, {NAME: empty})
    return followed


def check_swap(folder: str) -> None:
    followed, original = one_behind(folder), module._index
    seen: list[tuple[int, int]] = []

    def look() -> None:
        found = followed.find(*NAME, ["user-023"])
        seen.append((found.checkpoint_id, found.rows.num_rows))

    def watched(stored: StoredState, name: Any) -> IndexedRows:
        look()
        index = original(stored, name)
        look()
        return index

    with mutated(Mutant("asks while the next is loaded", [(module, "_index", watched)])):
        assert followed.refresh()
    look()
    followed.close()
    assert seen == [(1, 0), (1, 0), (2, 1)]


def test_the_earlier_one_answers_until_the_next_is_whole(folder: str) -> None:
    check_swap(folder)


def test_a_view_swapped_in_before_its_tables_is_noticed(folder: str) -> None:
    original = module._loaded

    def refresh(self: FollowedState) -> bool:
        stored = module.read_state(self._path)
        before = self._view
        self._view = View(stored, {}, before.tables)  # of two checkpoints
        self._view = original(stored, before.tables)
        return True

    mutant = Mutant("swapped in too early", [(FollowedState, "refresh", refresh)])
    with mutated(mutant), pytest.raises(AssertionError):
        check_swap(folder)


def test_a_refresh_that_fails_changes_nothing(folder: str) -> None:
    followed = one_behind(folder)
    shutil.rmtree(Path(folder) / "state")
    with pytest.raises(CorruptCheckpointError):
        followed.refresh()
    assert followed.find(*NAME, ["user-023"]).checkpoint_id == 1
    followed.close()
