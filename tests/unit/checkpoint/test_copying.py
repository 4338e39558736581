"""State files of a savepoint in the folder of the job that is started from it: linked or copied."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest
from isal import isal_zlib

from onceflow.runtime.checkpoint.checked_files import Wanted, check_content
from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.savepoints import copying
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state.operator_state import FrozenState
from onceflow.runtime.testing.harness import TableRows
from onceflow.runtime.testing.mutation import Mutant, mutated
from tests.unit.checkpoint.test_checked_files import Distant

ROWS = 200_000
CHANCE = np.random.default_rng(1)
Damage = Callable[[CheckpointStore, str], None]


def saved(store: LocalStore) -> CheckpointManifest:
    """A large file, and a small one."""
    handles = []
    for subtask, count in enumerate((ROWS, 10)):
        groups = pa.array(np.full(count, subtask), pa.uint16())
        table = pa.table({"key_group": groups, "value": pa.array(CHANCE.integers(0, 1 << 60, count))})
        frozen = FrozenState(range(subtask, subtask + 1), {"rows": TableRows(table)})
        handles.append(StateFiles(store, 1).write(1, "op", subtask, frozen))
    return CheckpointManifest("job", "lineage", 1, 1, 0, 0, 2, 2, handles)


def values(store: CheckpointStore, manifest: CheckpointManifest) -> list[int]:
    files = StateFiles(store, manifest.attempt)
    states = [files.read(handle, handle.key_groups) for handle in manifest.states]
    return [value for each in states for batch in each.batches("rows") for value in batch[1].to_pylist()]


def check_links(tmp_path: Path) -> None:
    source, target = LocalStore(str(tmp_path / "a")), LocalStore(str(tmp_path / "b"))
    manifest = saved(source)
    expected = values(source, manifest)
    begun = copy_state(source, target, manifest, "state/attempt-000001/savepoint", links=True)
    large, small = (Path(target.describe(path)) for path in sorted(begun.paths()))
    assert (large.stat().st_nlink, small.stat().st_nlink) == (2, 1), "the large one has two names"
    assert len([*tmp_path.glob("b/copies/**/*.arrows")]) == 1, (
        "the small one is there twice, as in any folder"
    )
    source.delete(manifest.paths())
    shutil.rmtree(tmp_path / "a")
    assert values(target, begun) == expected, "it needs the other folder no more"


def test_a_start_gives_large_files_a_name_of_its_own(tmp_path: Path) -> None:
    check_links(tmp_path)


def test_files_that_are_copied_are_told(tmp_path: Path) -> None:
    mutant = Mutant("no file is large", [(copying, "COPY_BYTES_MAX", 1 << 40)])
    with mutated(mutant), pytest.raises(AssertionError, match="two names"):
        check_links(tmp_path)


def test_where_there_are_no_links_files_are_copied(tmp_path: Path) -> None:
    source, target = LocalStore(str(tmp_path / "a")), MemoryStore()
    manifest = saved(source)
    assert copy_state(source, target, manifest, "state/x", links=True).paths() <= {
        status.path for status in target.list("")
    }
    other = LocalStore(str(tmp_path / "b"))
    assert not other.link(target, "state/x", "state/y")
    assert not other.link(source, "state/none", "state/y")
    kept = copy_state(source, LocalStore(str(tmp_path / "c")), manifest, "state/x")
    assert {(tmp_path / "c" / path).stat().st_nlink for path in kept.paths()} == {1}, "a savepoint is a copy"


@pytest.mark.parametrize("links", [True, False])
def test_a_large_file_that_was_altered_is_called_as_its_user_knows_it(tmp_path: Path, links: bool) -> None:
    source = LocalStore(str(tmp_path / "a"))
    manifest = saved(source)
    large = Path(source.describe(min(manifest.paths())))
    large.write_bytes(flipped(large.read_bytes()))
    with pytest.raises(CorruptCheckpointError, match="was altered") as raised:
        copy_state(source, LocalStore(str(tmp_path / "b")), manifest, "state/x", links=links)
    assert str(raised.value).startswith(f"{large} (state 'rows' of operator 'op') was altered")


# --- Small files, which are there twice ---


def flipped(content: bytes) -> bytes:
    altered = bytearray(content)
    altered[len(altered) // 2] ^= 1
    return bytes(altered)


def flip(store: CheckpointStore, path: str) -> None:
    store.write_copy(path, flipped(store.read(path)))


def cut(store: CheckpointStore, path: str) -> None:
    store.write_copy(path, store.read(path)[:-60])


def remove(store: CheckpointStore, path: str) -> None:
    store.delete([path])


class Unreadable(MemoryStore):
    """A disk that can't read the first of two files any more."""

    def open(self, path: str) -> BinaryIO:
        if path.startswith("state/attempt"):
            raise OSError(errno.EIO, "Input/output error", path)
        return super().open(path)


SAID = {flip: "was altered: its checksum is not", cut: "ends after", remove: "is gone"}
STORES = [MemoryStore, Distant]


def small(store: CheckpointStore) -> CheckpointManifest:
    """Two tables in one file, and its copy."""
    tables = {
        name: TableRows(pa.table({"key_group": pa.array([0] * 3, pa.uint16()), "value": [n, n + 1, n + 2]}))
        for n, name in enumerate(("rows", "timers"))
    }
    handle = StateFiles(store, 1).write(1, "op", 0, FrozenState(range(1), tables))
    return CheckpointManifest("job", "lineage", 1, 1, 0, 0, 1, 1, [handle])


def check_heals(source: CheckpointStore, damage: Damage) -> None:
    manifest = small(source)
    [path] = manifest.paths()
    damage(source, path)
    for target in (MemoryStore("new"), Distant()):
        said: list[str] = []
        begun = copy_state(source, target, manifest, "state/x", on_healed=said.append)
        assert values(target, begun) == [0, 1, 2]
        assert target.read("state/x/00000000.arrows") == source.read(copy_path(path))
        [problem] = said
        assert problem.startswith(source.describe(path))
        assert SAID[damage] in problem
        assert problem.endswith("; read from its copy")


@pytest.mark.parametrize("damage", SAID)
@pytest.mark.parametrize("store", STORES)
def test_a_damaged_file_is_read_from_its_copy(store: Callable[[], CheckpointStore], damage: Damage) -> None:
    check_heals(store(), damage)


@pytest.mark.parametrize("damage", [flip, cut])
def test_believing_the_first_file_is_told(damage: Damage) -> None:
    def believes(wanted: object, size: int, crc: int) -> None:
        pass

    mutant = Mutant("the first file is believed", [(copying, "check_content", believes)])
    with mutated(mutant), pytest.raises(CorruptCheckpointError):
        check_heals(MemoryStore(), damage)


@pytest.mark.parametrize("damage", SAID)
def test_if_its_copy_is_damaged_as_well_it_is_called_as_its_user_knows_it(damage: Damage) -> None:
    source, target = MemoryStore("old"), MemoryStore("new")
    manifest = small(source)
    [path] = manifest.paths()
    damage(source, path)
    flip(source, copy_path(path))
    with pytest.raises(CorruptCheckpointError) as raised:
        copy_state(source, target, manifest, "state/x")
    where, state = source.describe(path), "rows" if damage is remove else "timers"
    assert str(raised.value).startswith(f"{where} (state {state!r} of operator 'op') {SAID[damage]}")
    assert target.list("") == [], "nothing was written"


def check_heals_by_table(other: Damage) -> None:
    """One table is whole in the file alone, the other in its copy alone."""
    source, target = MemoryStore("old"), MemoryStore("new")
    manifest = small(source)
    [path] = manifest.paths()
    whole = source.read(path)
    other(source, path)  # the second table, which the file ends with
    source.write_copy(copy_path(path), bytes([whole[0] ^ 1]) + whole[1:])
    said: list[str] = []
    begun = copy_state(source, target, manifest, "state/x", on_healed=said.append)
    assert target.read(min(begun.paths())) == whole
    [problem] = said
    assert problem.startswith(f"{source.describe(path)} (state 'timers' of operator 'op') {SAID[other]}")


@pytest.mark.parametrize("other", [flip, cut])
def test_a_file_and_its_copy_that_are_damaged_in_different_tables_are_whole_together(other: Damage) -> None:
    check_heals_by_table(other)


def test_taking_a_copy_as_a_whole_is_told() -> None:
    def whole(contents: list[bytes], wanted: list[Wanted]) -> bytes:
        for each in wanted:
            mine = contents[-1][each.table.offset : each.table.offset + each.table.size]
            check_content(each, len(mine), isal_zlib.crc32(mine))
        return contents[-1]

    with mutated(Mutant("a copy is taken as a whole", [(copying, "_whole", whole)])):
        check_heals(MemoryStore(), flip)
        with pytest.raises(CorruptCheckpointError):
            check_heals_by_table(flip)


def test_a_damaged_copy_of_a_whole_file_does_no_harm() -> None:
    source, target = MemoryStore(), MemoryStore()
    manifest = small(source)
    [path] = manifest.paths()
    flip(source, copy_path(path))
    said: list[str] = []
    assert values(target, copy_state(source, target, manifest, "state/x", on_healed=said.append)) == [0, 1, 2]
    assert said == [], "it was not read"


def test_a_file_that_can_not_be_read_is_read_from_its_copy() -> None:
    source, target = Unreadable(), MemoryStore()
    said: list[str] = []
    begun = copy_state(source, target, small(source), "state/x", on_healed=said.append)
    assert values(target, begun) == [0, 1, 2]
    assert "can't be read: [Errno 5]" in said[0]
