"""read_state of a whole folder: what there is, by key and by part, pinned meanwhile; what is not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import onceflow
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.pins import Pins
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import CorruptCheckpointError, UsageError
from onceflow.runtime.state_tables.listing import shapes_of
from onceflow.runtime.state_tables.reader import StoredState

PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints"))


def test_the_tables_of_a_checkpoint(folder: str) -> None:
    with onceflow.read_state(folder) as stored:
        assert (stored.job, stored.checkpoint_id, stored.max_parallelism) == ("job", 2, 8)
        assert stored.operators == ["best", "every", "process", "reduce", "sliding", "src", "tumbling"]
        kinds = [(table.state, table.kind) for table in stored.tables if table.operator == "process"]
        assert kinds == [("n", "value"), ("totals", "map"), ("times", "list"), ("timers", "timers")]
        totals = stored.table("process", "totals")
        expected = pa.schema([("user", pa.string()), ("map_key", pa.int64()), ("value", pa.int64())])
        assert totals.schema == expected == totals.read().schema
        assert totals.read(["user-023"]).to_pylist() == [{"user": "user-023", "map_key": 30000, "value": 395}]
        assert stored.table("src").read().to_pylist()[0]["position"] == '{"next_offset": 330}'
        windows = stored.table("tumbling")
        assert windows.schema.names == ["user", "window_start", "value"]
        assert windows.read().num_rows == windows.stored_rows == 78
        assert sum(b.num_rows for part in range(windows.parts) for b in windows.batches(part=part)) == 78


@pytest.mark.parametrize("savepoint", ["golden_savepoint_4", "golden_savepoint_5"])
def test_a_savepoint_has_the_same_tables(savepoint: str, folder: str) -> None:
    with (
        onceflow.read_state(str(PROGRAMS / savepoint)) as taken,
        onceflow.read_state(folder) as stored,
    ):
        assert [(t.operator, t.state) for t in taken.tables] == [(t.operator, t.state) for t in stored.tables]
        for mine, theirs in zip(taken.tables, stored.tables, strict=True):
            assert rows(mine.read()) == rows(theirs.read())


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_only_files_with_the_key_group_are_read(folder: str) -> None:
    """A file that is gone is missed by those alone whose key is in it."""
    with onceflow.read_state(folder) as stored:
        table = stored.table("reduce")
        [user] = table.batches(part=0).__next__().slice(0, 1).column("user").to_pylist()
        [_, other, *_] = [handle for handle in stored._manifest.states if handle.uid == "reduce"]
        for path in Path(folder).rglob(Path(other.tables[0].path).name):
            if other.tables[0].path in str(path):
                path.unlink()
        assert table.schema.names == ["user", "value"]
        assert table.read([user]).num_rows == 1
        with pytest.raises(CorruptCheckpointError, match="is gone"):
            table.read()


def test_what_is_read_is_pinned(folder: str) -> None:
    store = open_store(folder)
    [(_, manifest)] = read_log(store).completed()
    with onceflow.read_state(folder):
        assert Pins(store).paths() == manifest.paths()
    assert Pins(store).paths() == set()
    stored = onceflow.read_state(folder)
    table = stored.table("reduce")
    del stored
    assert Pins(store).paths(), "who has a table has the state"
    del table
    assert Pins(store).paths() == set()


def test_a_state_of_which_there_are_no_rows_has_its_columns(folder: str) -> None:
    """They are those of the description; the fields of a struct come by their names."""
    with onceflow.read_state(folder) as stored:
        for table in stored.tables:
            if table.kind != "offsets":
                described, read = table._shape.schema(None), table.schema
                assert described.names == read.names
                flat = [described.field(n).type for n in read.names if n != "value"]
                assert flat == [read.field(n).type for n in read.names if n != "value"]


REFUSED: list[tuple[Any, str]] = [
    (lambda s: s.table("proces"), r"no state of 'proces' \(did you mean 'process'\?\); use one of \['best'"),
    (lambda s: s.table("process"), r"'process' has several states .*: use one of \['n', 'totals', 'times'"),
    (lambda s: s.table("process", "total"), r"no state 'total' .*\(did you mean 'totals'\?\)"),
    (lambda s: s.table("src").read(["x"]), "state 'offsets' of 'src' has no key: read it without keys"),
    (lambda s: s.table("reduce").read([{"usr": "a"}]), r"has no column 'usr' \(did you mean 'user'\?\)"),
    (lambda s: s.table("reduce").read([{}]), "needs user too: give a value for each column"),
    (lambda s: s.table("reduce").read([5]), "5 is no string, as the key column 'user' of state 'reduced'"),
]


@pytest.mark.parametrize(("call", "sentence"), REFUSED)
def test_what_is_not_there_is_said(call: Any, sentence: str, folder: str) -> None:
    with onceflow.read_state(folder) as stored, pytest.raises(UsageError, match=sentence):
        call(stored)


def test_what_is_no_state_is_said(folder: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no completed checkpoint 7: choose one of 2"):
        onceflow.read_state(folder, 7)
    with pytest.raises(
        UsageError, match="has no state: neither checkpoints of a job nor a savepoint is there; give"
    ):
        onceflow.read_state(str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="is a savepoint of checkpoint 4: leave the checkpoint out"):
        onceflow.read_state(str(PROGRAMS / "golden_savepoint_5"), 7)


def test_state_that_nobody_described_is_read_all_the_same() -> None:
    store = open_store(str(PROGRAMS / "written_before"))
    manifest = read_log(store).completed()[-1][1]
    stored = StoredState(store, manifest, "it")
    assert {shape.kind for shape in shapes_of(manifest)} == {"not described", "offsets"}
    [first, *_] = stored.table("best").read().to_pylist()
    assert first in stored.table("best").read([first["user"]]).to_pylist()
