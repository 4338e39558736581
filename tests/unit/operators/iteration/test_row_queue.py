"""A queue whose rows may go to disk is a queue: in order, in little memory, and nothing is left of it."""

from __future__ import annotations

import gc
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Retryable
from onceflow.runtime.operators.iteration.row_queue import RowQueue, StoredRows
from onceflow.runtime.records import Records
from onceflow.runtime.testing.mutation import Mutant, mutated
from tests.unit.environment.test_spool import open_spools
from tests.unit.operators.iteration.test_back_edge import numbers, rows

ROW_BYTES = 8
moves = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 9)),
    st.tuples(st.just("take"), st.integers(1, 5)),
    st.tuples(st.just("bound"), st.integers(0, 12)),
)
Move = tuple[str, int]
DISORDER: list[Move] = [
    ("bound", 3), ("append", 2), ("append", 4), ("take", 1), ("append", 1), ("take", 9), ("append", 1),
    ("take", 3), ("append", 9), ("take", 2), ("take", 5), ("take", 5),
]  # fmt: skip
"""Rows in memory, in files, and in memory again; a batch from a file is taken in parts."""


@settings(max_examples=150, deadline=None)
@given(st.lists(moves, max_size=30))
@example(DISORDER)
def test_it_agrees_with_a_list(moves: list[Move]) -> None:
    with TemporaryDirectory(prefix="onceflow-") as name:
        check(moves, Path(name))


def check(moves: list[Move], folder: Path) -> None:
    queue, model, bound, seen = RowQueue(folder, file_bytes=500), deque[int](), 1 << 40, 0
    for move, n in moves:
        if move == "append":
            new = list(range(seen, seen + n))
            seen += n
            model.extend(new)
            batch = pa.record_batch({"n": pa.array(new, pa.int64())})
            assert queue.append(Records(batch)).batch.column("n").to_pylist() == new
        elif move == "take":
            is_empty, taken = len(queue) == 0, queue.take(n)
            assert (taken is None) == is_empty
            found = numbers(taken) or []
            assert len(found) <= n
            assert found == [model.popleft() for _ in found]
        else:
            bound = n * ROW_BYTES
            queue.bytes_max = lambda bound=bound: bound  # type: ignore[misc]
    logged = [number for waiting in queue for number in waiting.batch.column("n").to_pylist()]
    assert logged == list(model)
    while (taken := queue.take(1 << 30)) is not None:
        for number in numbers(taken) or []:
            assert number == model.popleft()
    assert not model
    assert queue._in_memory == 0


def test_what_has_no_room_is_in_files_and_these_go_when_it_was_taken(tmp_path: Path) -> None:
    queue = RowQueue(tmp_path, file_bytes=1_000)
    queue.bytes_max = lambda: 4 * ROW_BYTES
    log = [queue.append(rows(*range(n, n + 4))) for n in range(0, 400, 4)]
    assert [isinstance(waiting, StoredRows) for waiting in queue] == [False] + [True] * 99
    del log[1:]
    files = open_spools(tmp_path)
    assert files > 5
    kept = [waiting for waiting in queue if isinstance(waiting, StoredRows)][:1]
    taken = [number for _ in range(100) for number in numbers(queue.take(9)) or []]
    assert taken == list(range(400))
    gc.collect()
    assert open_spools(tmp_path) == 2, "that of the log, and the one that is written"
    assert numbers(Records(kept[0].batch)) == [4, 5, 6, 7], "a checkpoint is still written of it"
    kept.clear()
    gc.collect()
    assert open_spools(tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_without_a_bound_all_is_in_memory(tmp_path: Path) -> None:
    queue = RowQueue(tmp_path / "nowhere")
    queue.append(rows(*range(10_000)))
    assert open_spools(tmp_path) == 0


def test_a_disk_without_room_is_told(tmp_path: Path) -> None:
    queue = RowQueue(tmp_path / "nowhere")
    queue.bytes_max = lambda: 0
    with pytest.raises(Retryable, match=r"no room in .*nowhere for rows that go round in a loop: .*TMPDIR"):
        queue.append(rows(1))


def _in_front(self: RowQueue, records: Records) -> object:
    waiting = self._stored(records.batch)
    self._waiting.appendleft(waiting)
    return waiting


def _at_the_same_place(self: RowQueue, batch: pa.RecordBatch) -> StoredRows:
    self._place = 0
    return _original_stored(self, batch)


_original_stored = RowQueue._stored


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("what comes last goes first", [(RowQueue, "append", _in_front)]),
        Mutant("one batch is written over another", [(RowQueue, "_stored", _at_the_same_place)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_mutant_is_killed(mutant: Mutant, tmp_path: Path) -> None:
    moves: list[Move] = [("bound", 0), ("append", 2), ("append", 2), ("take", 2), *DISORDER]
    check(moves, tmp_path)
    with mutated(mutant), pytest.raises(AssertionError):
        check(moves, tmp_path)
