"""State files: whole or cut to a range of key groups, every kind of damage found and named."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from onceflow.runtime.checkpoint.copies import COPY_BYTES_MAX, create_copied_file, delete_with_copies
from onceflow.runtime.checkpoint.local_store import LocalStore
from onceflow.runtime.checkpoint.manifest import StateHandle, TableFile
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.checkpoint.state_files import (
    FIRST_ROWS,
    PIECE_BYTES,
    PIECE_ROWS,
    StateFiles,
    check_writable,
)
from onceflow.runtime.errors import CorruptCheckpointError, Unavailable
from onceflow.runtime.state.operator_state import FrozenState, RestoredState
from onceflow.runtime.testing.harness import TableRows
from tests.unit.checkpoint.test_checked_files import Distant

STATE_OF_VERSION_1 = (
    "ffffffffa80000001000000000000a000c000600050008000a000000000104000c0000000800080000000400080000000400"
    "0000020000004000000004000000d8ffffff0000010510000000180000000400000000000000030000006b65790004000400"
    "04000000100014000800060007000c0000001000100000000000010210000000200000000400000000000000090000006b65"
    "795f67726f757000060008000400060000001000000000000000ffffffffc800000014000000000000000c00160006000500"
    "08000c000c0000000003040018000000280000000000000000000a0018000c00040008000a0000006c000000100000000400"
    "0000000000000000000005000000000000000000000000000000000000000000000000000000080000000000000008000000"
    "0000000000000000000000000800000000000000140000000000000020000000000000000800000000000000000000000200"
    "000004000000000000000000000000000000040000000000000000000000000000000400040009000b000000000002000000"
    "040000000600000008000000000000006b316b336b306b32ffffffff00000000"
)
CHECKSUM_OF_VERSION_1 = "crc32:5eab54b5"


def state(groups: list[int], key_groups: range = range(4, 12)) -> FrozenState:
    table = pa.table(
        {"key_group": pa.array(groups, pa.uint16()), "key": [f"k{n}" for n in range(len(groups))]}
    )
    timers = pa.table(
        {"key_group": pa.array(sorted(groups)[:1], pa.uint16()), "at": [7] * min(1, len(groups))}
    )
    tables = {"keys": TableRows(table), "timers": TableRows(timers)}
    return FrozenState(key_groups, tables, {"watermark": 5})


def table_of(state: RestoredState, name: str = "keys") -> pa.Table:
    return pa.Table.from_batches(state.batches(name))


def keys_of(state: RestoredState) -> list[str]:
    return [key for piece in state.batches("keys") for key in piece["key"].to_pylist()]


def test_state_comes_back_whole() -> None:
    files = StateFiles(MemoryStore(), 1)
    handle = files.write(3, "op/é", 2, state([9, 4, 11, 4]))
    whole = files.read(handle, range(128))
    assert whole.key_groups == range(4, 12)
    assert table_of(whole).to_pydict() == {"key_group": [9, 4, 11, 4], "key": ["k0", "k1", "k2", "k3"]}
    assert table_of(whole, "timers").num_rows == 1
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
    assert keys_of(part) == kept
    assert list(part.key_groups) == [g for g in range(4, 12) if g in cut]


def test_at_another_parallelism_tables_without_rows_of_its_key_groups_are_not_read() -> None:
    """Nor are they checked: what is damaged there stops nobody who has none of it."""
    store = Distant()
    files = StateFiles(store, 1)
    whole = files.write(3, "op", 0, state([9, 4, 11, 4]))  # one timer, of group 4
    other = files.write(3, "other", 0, state([5, 5]))
    sizes = {(each.path, each.name): each.size for each in (*whole.tables, *other.tables)}
    states = files.read_all([(whole, range(8, 12)), (other, range(8, 12))])
    assert keys_of(states[0]) == ["k0", "k2"]
    assert [list(each.batches("timers")) for each in states] == [[], []]
    assert keys_of(states[1]) == []
    assert len(store.asked) == sizes[whole.tables[0].path, "keys"]
    delete_with_copies(store, [other.tables[0].path])
    files.read(other, range(8, 12))
    with pytest.raises(CorruptCheckpointError, match=r"'keys' of operator 'other'.* is gone"):
        files.read(other, range(5, 12))


def test_states_that_are_read_together_are_fetched_once_and_at_the_same_time() -> None:
    store = Distant(meet=4)
    files = StateFiles(store, 1)
    handles = [files.write(3, uid, 0, state([9, 4])) for uid in ("a", "b")]
    states = files.read_all([(handle, range(128)) for handle in handles])
    for each in states * 2:
        assert keys_of(each) == ["k0", "k1"]
        assert table_of(each, "timers").num_rows == 1
    assert set(store.asked.values()) == {1}
    assert store.opened == 0


def test_large_state_is_compressed_and_comes_back() -> None:
    groups = np.sort(np.random.default_rng(1).integers(0, 128, 50_000)).astype(np.uint16)
    table = pa.table({"key_group": groups, "n": np.arange(50_000)})
    files = StateFiles(MemoryStore(), 1)
    handle = files.write(1, "op", 0, FrozenState(range(128), {"t": TableRows(table)}))
    assert handle.size < table.nbytes * 0.8
    assert table_of(files.read(handle, range(128)), "t") == table


@pytest.mark.parametrize("rows", [PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 3 * PIECE_ROWS + 5])
def test_state_of_several_pieces_is_one_stream(rows: int) -> None:
    rng = np.random.default_rng(rows)
    texts = [None if n % 5 == 0 else "x" * (n % 7) for n in range(rows)]
    groups = rng.integers(16, 64, rows).astype(np.uint16)
    table = pa.table({"key_group": groups, "n": rng.integers(0, 1 << 40, rows), "text": texts})
    store = MemoryStore()
    files = StateFiles(store, 1)
    handle = files.write(1, "op", 0, FrozenState(range(16, 64), {"t": TableRows(table)}))
    content = store.read(handle.tables[0].path)
    assert handle.tables[0].size == len(content)
    assert pa.ipc.open_stream(content).read_all() == table
    assert handle.tables[0].rows_per_key_group == tuple(np.bincount(groups, minlength=64)[16:].tolist())
    half = table_of(files.read(handle, range(30, 50)), "t")
    assert half == table.filter((pc.field("key_group") >= 30) & (pc.field("key_group") < 50))


def test_a_large_state_is_never_whole_in_memory() -> None:
    rows = Counting(10 * PIECE_ROWS + 1)
    StateFiles(MemoryStore(), 1).write(1, "op", 0, FrozenState(range(128), {"t": rows}))
    assert rows.pieces == [FIRST_ROWS, *[PIECE_ROWS] * 9, rows.total - FIRST_ROWS - 9 * PIECE_ROWS]


def test_wide_rows_are_in_small_pieces(tmp_path: Path) -> None:
    """Each is in memory several times while it is made, encoded and taken."""
    rows, store = Counting(20_000, row_bytes=1_000), LocalStore(str(tmp_path))
    handle = StateFiles(store, 1).write(1, "op", 0, FrozenState(range(128), {"t": rows}))
    assert sum(rows.pieces) == rows.total
    assert max(rows.pieces) * 1_000 <= PIECE_BYTES
    assert min(rows.pieces[1:-1]) * 1_000 > PIECE_BYTES // 2
    read = StateFiles(store, 2).read(handle, range(128)).batches("t")
    assert [piece.num_rows for piece in read] == rows.pieces


class ReadsCounted(LocalStore):
    """Notes how much is asked for at once."""

    largest = 0

    def open(self, path: str) -> BinaryIO:
        file, store = super().open(path), self

        class Counted:
            closed = False

            def read(self, size: int = -1) -> bytes:
                content = file.read(size)
                store.largest = max(store.largest, len(content))
                return content

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def __enter__(self) -> Counted:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

        return cast(BinaryIO, Counted())


@pytest.mark.parametrize("key_groups", [range(128), range(64)], ids=["whole", "cut"])
def test_a_large_state_is_restored_in_little_memory(key_groups: range, tmp_path: Path) -> None:
    """Counted: the largest read, the largest piece, how many pieces are alive, what Arrow and Python hold."""
    pieces, rng = 60, np.random.default_rng(5)
    groups = np.resize(np.arange(128, dtype=np.uint16), pieces * PIECE_ROWS)
    table = pa.table({"key_group": groups, "n": rng.integers(0, 1 << 40, len(groups))})
    store = ReadsCounted(str(tmp_path))
    expected = table.filter(pc.field("key_group") < key_groups.stop).column("n").to_numpy().sum()
    state = FrozenState(range(128), {"t": TableRows(table)})
    handle = StateFiles(store, 1).write(1, "op", 0, state)
    before, bound = pa.total_allocated_bytes(), handle.size // 10
    tracemalloc.start()
    try:
        total = largest = held = 0
        for piece in StateFiles(store, 2).read(handle, key_groups).batches("t"):
            total += int(piece.column("n").to_numpy().sum())
            largest = max(largest, piece.nbytes)
            held = max(held, pa.total_allocated_bytes() - before)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == expected
    assert max(store.largest, largest, held, peak) < bound, (store.largest, largest, held, peak, handle.size)


class Counting:
    """FrozenRows that notes how many are asked for at a time."""

    def __init__(self, total: int, row_bytes: int = 0) -> None:
        self.total = total
        self.pieces: list[int] = []
        self._text = b"x" * row_bytes

    def __len__(self) -> int:
        return self.total

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        self.pieces.append(end - first)
        columns = {"key_group": pa.array(np.zeros(end - first, np.uint16))}
        return pa.record_batch(
            columns | ({"text": pa.array([self._text] * (end - first))} if self._text else {})
        )


def test_a_state_of_version_1_whose_rows_were_sorted_is_read() -> None:
    """Format: written by the code before version 2, and kept as it was."""
    content = bytes.fromhex(STATE_OF_VERSION_1)
    store = MemoryStore()
    with store.create_file("state/attempt-000001/0000000003.op.2.arrows") as file:
        file.write(content)
    table = TableFile(
        "keys", "state/attempt-000001/0000000003.op.2.arrows", 0, len(content), CHECKSUM_OF_VERSION_1,
        (2, 0, 0, 0, 0, 1, 0, 1),
    )  # fmt: skip
    handle = StateHandle("op", 2, 4, 12, (table,))
    files = StateFiles(store, 2)
    assert keys_of(files.read(handle, range(128))) == ["k1", "k3", "k0", "k2"]
    assert keys_of(files.read(handle, range(5, 10))) == ["k0"]


def test_empty_state_has_no_file_and_keeps_its_meta() -> None:
    store = MemoryStore()
    handle = StateFiles(store, 1).write(1, "op", 0, state([]))
    assert store.list("") == []
    assert StateFiles(store, 2).read(handle, range(128)).meta == {"watermark": 5}


def written(folder: Path) -> tuple[StateFiles, StateHandle, Path]:
    files = StateFiles(LocalStore(str(folder)), 1)
    handle = files.write(1, "op", 0, state([5, 6, 7]))
    return files, handle, folder / handle.tables[0].path


def without_copy(folder: Path) -> tuple[StateFiles, StateHandle, Path]:
    files, handle, path = written(folder)
    (folder / "copies" / handle.tables[0].path).unlink()
    return files, handle, path


def test_a_missing_state_file_is_named(tmp_path: Path) -> None:
    files, handle, path = without_copy(tmp_path)
    path.unlink()
    with pytest.raises(CorruptCheckpointError, match=f"{path}.*'keys' of operator 'op'.*is gone"):
        files.read(handle, range(128))


def test_a_half_written_state_file_is_named(tmp_path: Path) -> None:
    files, handle, path = without_copy(tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CorruptCheckpointError, match="ends after 100 bytes"):
        files.read(handle, range(128))


def test_every_flipped_byte_is_found(tmp_path: Path) -> None:
    files, handle, path = without_copy(tmp_path)
    content = path.read_bytes()
    for position in range(0, len(content), 7):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(CorruptCheckpointError, match="was altered"):
            files.read(handle, range(128))


@pytest.mark.parametrize(
    "damage", [lambda c: None, lambda c: c[:100], lambda c: b"", lambda c: c[:-9] + bytes(9)]
)
def test_a_small_state_file_that_is_damaged_is_read_from_its_copy_and_said(
    damage: Callable[[bytes], bytes | None], tmp_path: Path
) -> None:
    _, handle, path = written(tmp_path)
    content = damage(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    said: list[str] = []
    files = StateFiles(LocalStore(str(tmp_path)), 2, said.append)
    assert keys_of(files.read(handle, range(128)))
    assert said
    assert all(str(path) in problem and problem.endswith("; read from its copy") for problem in said)


def test_a_large_state_file_has_no_copy() -> None:
    store = MemoryStore()
    with create_copied_file(store, "state/large") as file:
        file.write(bytes(COPY_BYTES_MAX))
        file.write(b"1")
    with create_copied_file(store, "state/small") as file:
        file.write(bytes(COPY_BYTES_MAX))
    assert [s.path for s in store.list("copies")] == ["copies/state/small"]


def test_a_file_that_failed_half_way_has_no_copy() -> None:
    store = MemoryStore()
    with contextlib.suppress(ValueError), create_copied_file(store, "state/x") as file:
        file.write(b"1")
        raise ValueError
    assert store.list("copies") == []


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


@pytest.mark.parametrize("folder", ["state", "staged"])
def test_a_folder_that_can_not_be_written_is_found_before_a_slot_starts(folder: str, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    check_writable(store, 1, 0)
    assert store.list("") == []
    wrong = LocalStore(str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / folder).touch()
    with pytest.raises(Unavailable, match=str(tmp_path / "other" / folder)):
        check_writable(wrong, 1, 0)
