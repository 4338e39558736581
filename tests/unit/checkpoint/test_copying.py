"""State files of a savepoint in the folder of the job that is started from it: linked or copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.savepoints import copying
from onceflow.runtime.checkpoint.savepoints.copying import copy_state
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state.operator_state import FrozenState
from onceflow.runtime.testing.harness import TableRows
from onceflow.runtime.testing.mutation import Mutant, mutated

ROWS = 200_000
CHANCE = np.random.default_rng(1)


def saved(store: LocalStore) -> CheckpointManifest:
    """A large file, and a small one."""
    handles = []
    for subtask, count in enumerate((ROWS, 10)):
        groups = pa.array(np.full(count, subtask), pa.uint16())
        table = pa.table({"key_group": groups, "value": pa.array(CHANCE.integers(0, 1 << 60, count))})
        frozen = FrozenState(range(subtask, subtask + 1), {"rows": TableRows(table)})
        handles.append(StateFiles(store, 1).write(1, "op", subtask, frozen))
    return CheckpointManifest("job", "lineage", 1, 1, 0, 0, 2, 2, handles)


def values(store: LocalStore, manifest: CheckpointManifest) -> list[int]:
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


def test_a_linked_file_is_checked(tmp_path: Path) -> None:
    source = LocalStore(str(tmp_path / "a"))
    manifest = saved(source)
    large = Path(source.describe(min(manifest.paths())))
    content = bytearray(large.read_bytes())
    content[len(content) // 2] ^= 1
    large.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match="was altered"):
        copy_state(source, LocalStore(str(tmp_path / "b")), manifest, "state/x", links=True)
