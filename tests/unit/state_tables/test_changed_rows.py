"""What has become of a state between two checkpoints."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import onceflow
from onceflow.runtime.checkpoint.log import CheckpointCompleted, encode_entry, entry_path
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import UsageError
from onceflow.runtime.state_tables import changed_rows
from onceflow.runtime.state_tables.changed_rows import change_parts, changes_in, changes_of
from onceflow.runtime.testing.mutation import Mutant, mutated

PROGRAMS = Path(__file__).parents[1] / "changed_programs"
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int32()), ("value", pa.struct([("x", pa.float64())]))])
KEY = st.tuples(st.sampled_from(["", "a", "ü", None]), st.sampled_from([0, 1, None]))
VALUE = st.none() | st.sampled_from([0.0, 1.5, None, float("inf")])
STATE = st.dictionaries(KEY, VALUE, max_size=8)


def table(state: dict[Any, Any]) -> pa.Table:
    columns = {"user": [key[0] for key in state], "n": [key[1] for key in state]}
    values = [None if value is None else {"x": value} for value in state.values()]
    return pa.table({**columns, "value": values}, SCHEMA)


def replayed(was: dict[Any, Any], now: dict[Any, Any]) -> None:
    """Changes make the later state of the earlier one."""
    played, before = dict(was), None
    for row in changes_of(table(was), table(now), ["user", "n"]).to_pylist():
        key, value = (row["user"], row["n"]), None if row["value"] is None else row["value"]["x"]
        match row["row_kind"]:
            case "insert":
                assert key not in played
                played[key] = value
            case "update_before":
                assert played[key] == value
                before = key
            case "update_after":
                assert key == before
                assert played[key] != value
                played[key] = value
            case _:
                assert played.pop(key) == value
    assert played == now


@settings(max_examples=150, deadline=None)
@given(STATE, STATE)
@example({("a", None): 1.5, (None, 1): None}, {("a", None): 0.0, (None, 1): None, ("a", 0): 1.5})
@example({("a", None): None}, {("a", None): 1.5})
def test_changes_make_the_later_state_of_the_earlier_one(was: dict[Any, Any], now: dict[Any, Any]) -> None:
    replayed(was, now)


def null_is_like_everything(left: Any, right: Any, names: Any) -> Any:
    return (left["value"] != right["value"]).fill_null(False)


def test_a_null_that_counts_for_nothing_is_found() -> None:
    place = ("a", None)
    was, now = table({place: None}), table({place: 1.5})
    assert changes_of(was, now, ["user", "n"]).num_rows == 2
    mutant = Mutant("null is like everything", [(changed_rows, "_differ", null_is_like_everything)])
    with mutated(mutant), pytest.raises(AssertionError):
        replayed({place: None}, {place: 1.5})


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with checkpoint 2, and as checkpoint 9 the same with one state replaced."""
    base, edited = tmp_path / "checkpoints", tmp_path / "edited"
    shutil.copytree(PROGRAMS / "golden_3", base)
    counts = pa.table({"user": ["user-023", "new"], "value": [77, 1]})
    same = str(PROGRAMS / "golden_savepoint_5")
    onceflow.write_state(str(edited), "process", "n", counts, keys=["user"], base=same)
    with onceflow.read_state(str(edited)) as stored:
        manifest = replace(stored._manifest, checkpoint_id=9)
    shutil.copytree(edited / "state", base / "state", dirs_exist_ok=True)
    store = open_store(str(base))
    position = read_log(store).next_position
    store.create(entry_path(position), encode_entry(position, CheckpointCompleted(manifest)))
    return str(base)


def test_changes_of_two_checkpoints(folder: str) -> None:
    found = onceflow.read_changes(folder, 2, 9, "process", "n")
    assert found.schema.names == ["row_kind", "user", "value"]
    rows = found.to_pylist()
    assert {"row_kind": "insert", "user": "new", "value": 1} in rows
    place = rows.index({"row_kind": "update_before", "user": "user-023", "value": 2})
    assert rows[place + 1] == {"row_kind": "update_after", "user": "user-023", "value": 77}
    assert sum(row["row_kind"] == "delete" for row in rows) == 125 == len(rows) - 3
    for operator, state in [("process", "totals"), ("process", "times"), ("process", "timers")]:
        assert onceflow.read_changes(folder, 2, 9, operator, state).num_rows == 0
    for operator in ("tumbling", "sliding", "reduce", "src", "best"):
        assert onceflow.read_changes(folder, 2, 9, operator).num_rows == 0


@pytest.mark.parametrize(("rows_max", "count"), [(1, 8), (60, 5), (10_000, 1)])
def test_parts_have_all_changes_between_them(folder: str, rows_max: int, count: int) -> None:
    """There are 8 key groups, with 8 to 22 keys in each checkpoint."""
    whole = onceflow.read_changes(folder, 2, 9, "process", "n")
    with onceflow.read_state(folder, 2) as before, onceflow.read_state(folder, 9) as after:
        was, now = before.table("process", "n"), after.table("process", "n")
        parts = change_parts(was, now, rows_max)
        found = pa.concat_tables([changes_in(was, now, part) for part in parts])
    groups = [group for part in parts if part is not None for group in part]
    assert (groups, len(parts)) == ([*range(8)], count)
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, whole.to_pylist()))


def test_a_table_without_a_key_is_one_part(folder: str) -> None:
    with onceflow.read_state(folder, 2) as before, onceflow.read_state(folder, 9) as after:
        was, now = before.table("src"), after.table("src")
        assert change_parts(was, now, 1) == [None]
        assert changes_in(was, now, None).num_rows == 0


def test_what_has_no_changes_is_said(folder: str) -> None:
    with pytest.raises(UsageError, match="has no completed checkpoint 5: choose one of 2, 9"):
        onceflow.read_changes(folder, 2, 5, "reduce")
    with pytest.raises(UsageError, match=r"or other types: read each by read_state"):
        changes_of(table({}), table({}).drop_columns(["value"]), ["user", "n"])
