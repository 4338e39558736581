"""State files: sorted by key group, cut to a range, every kind of damage found and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles, StateFiles
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.state.operator_state import OperatorState


def state(groups: list[int], key_groups: range = range(4, 12)) -> OperatorState:
    table = pa.table(
        {"key_group": pa.array(groups, pa.uint16()), "key": [f"k{n}" for n in range(len(groups))]}
    )
    timers = pa.table(
        {"key_group": pa.array(sorted(groups)[:1], pa.uint16()), "at": [7] * min(1, len(groups))}
    )
    return OperatorState(key_groups, {"keys": table, "timers": timers}, {"watermark": 5})


def test_state_comes_back_whole_and_sorted_by_key_group() -> None:
    files = StateFiles(MemoryStore(), 1)
    handle = files.write(3, "op/é", 2, state([9, 4, 11, 4]))
    whole = files.read(handle, range(128))
    assert whole.key_groups == range(4, 12)
    assert whole.tables["keys"].to_pydict() == {"key_group": [4, 4, 9, 11], "key": ["k1", "k3", "k0", "k2"]}
    assert whole.tables["timers"].num_rows == 1
    assert whole.meta == {"watermark": 5}
    assert handle.tables[0].path == "state/attempt-000001/0000000003.op%2F%C3%A9.2.arrows"


@pytest.mark.parametrize(
    ("cut", "kept"),
    [(range(9), ["k1", "k3"]), (range(9, 11), ["k0"]), (range(11, 99), ["k2"]), (range(5, 9), [])],
)
def test_a_restore_at_another_parallelism_gets_its_key_groups_only(cut: range, kept: list[str]) -> None:
    files = StateFiles(MemoryStore(), 1)
    handle = files.write(3, "op", 0, state([9, 4, 11, 4]))
    part = files.read(handle, cut)
    assert part.tables["keys"]["key"].to_pylist() == kept
    assert list(part.key_groups) == [g for g in range(4, 12) if g in cut]


def test_large_state_is_compressed_and_comes_back() -> None:
    groups = np.sort(np.random.default_rng(1).integers(0, 128, 50_000)).astype(np.uint16)
    table = pa.table({"key_group": groups, "n": np.arange(50_000)})
    files = StateFiles(MemoryStore(), 1)
    handle = files.write(1, "op", 0, OperatorState(range(128), {"t": table}))
    assert handle.size < table.nbytes * 0.8
    assert files.read(handle, range(128)).tables["t"] == table


def test_empty_state_has_no_file_and_keeps_its_meta() -> None:
    store = MemoryStore()
    handle = StateFiles(store, 1).write(1, "op", 0, state([]))
    assert store.list("") == []
    assert StateFiles(store, 2).read(handle, range(128)).meta == {"watermark": 5}


def written(folder: Path) -> tuple[StateFiles, StateHandle, Path]:
    files = StateFiles(LocalStore(str(folder)), 1)
    handle = files.write(1, "op", 0, state([5, 6, 7]))
    return files, handle, folder / handle.tables[0].path


def test_a_missing_state_file_is_named(tmp_path: Path) -> None:
    files, handle, path = written(tmp_path)
    path.unlink()
    with pytest.raises(CorruptCheckpointError, match=f"{path}.*'keys' of operator 'op'.*is gone"):
        files.read(handle, range(128))


def test_a_half_written_state_file_is_named(tmp_path: Path) -> None:
    files, handle, path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptCheckpointError, match="ends after 100 bytes"):
        files.read(handle, range(128))


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    files, handle, path = written(tmp_path)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(CorruptCheckpointError, match="was altered"):
            files.read(handle, range(128))


def test_an_attempt_never_writes_a_state_file_twice() -> None:
    files = StateFiles(MemoryStore(), 1)
    files.write(1, "op", 0, state([5]))
    with pytest.raises(Exception, match="exists"):
        files.write(1, "op", 0, state([5]))


def test_staged_files_of_writers_and_attempts_never_meet() -> None:
    store = MemoryStore()
    paths = set()
    for attempt, uid, subtask in [(1, "a", 0), (1, "a", 1), (1, "b", 0), (2, "a", 0), (1, "a.1", 0)]:
        staged = AttemptStagedFiles(store, attempt, uid, subtask)
        for _ in range(2):
            path, file = staged.create("rows")
            with file:
                file.write(b"x")
            paths.add(path)
    assert len(paths) == 10
    with pytest.raises(CorruptCheckpointError, match="staged/nothing is gone"):
        AttemptStagedFiles(store, 1, "a", 0).open("staged/nothing")
