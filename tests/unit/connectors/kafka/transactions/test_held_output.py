"""Output held back: spilled, staged, read again, and refused when a disk has altered it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.transactions.held import HeldOutput, RestoredOutput, StagedOutput
from onceflow.runtime.checkpoint.copies import delete_with_copies
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.errors import CorruptCheckpointError


def rows(*numbers: int) -> pa.RecordBatch:
    found = [{"topic": "t", "partition": 0, "value": b"%d" % n} for n in numbers]
    return pa.RecordBatch.from_pylist(found, PRODUCE_SCHEMA)


def values(output: HeldOutput | RestoredOutput) -> list[bytes]:
    return [value for batch in output.batches() for value in batch["value"].to_pylist()]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def files(store: MemoryStore) -> AttemptStagedFiles:
    return AttemptStagedFiles(store, 1, "out", 0)


@pytest.mark.parametrize("memory_bytes_max", [0, 100, 1 << 20])
def test_what_goes_in_comes_out_whether_spilled_or_not(
    files: AttemptStagedFiles, memory_bytes_max: int
) -> None:
    held = HeldOutput(files, memory_bytes_max)
    for n in range(0, 30, 3):
        held.add(rows(n, n + 1, n + 2))
    held.freeze(7)
    staged = held.stage()
    assert held.stage() is staged
    assert (staged.checkpoint_id, staged.rows) == (7, 30)
    expected = [b"%d" % n for n in range(30)]
    assert values(held) == expected
    assert values(held) == expected  # as often as asked
    assert values(RestoredOutput(StagedOutput.from_json(staged.to_json()), files)) == expected


@pytest.mark.parametrize(
    "damage", [lambda c: c[:-9], lambda c: c[:50] + bytes([c[50] ^ 1]) + c[51:], lambda c: b""]
)
def test_damaged_file_is_refused_before_its_first_row(
    store: MemoryStore, files: AttemptStagedFiles, damage
) -> None:  # type: ignore[no-untyped-def]
    held = HeldOutput(files, 1 << 20)
    held.add(rows(1, 2, 3))
    held.freeze(1)
    staged = held.stage()
    content = store.read(staged.path)
    delete_with_copies(store, [staged.path])
    store.create(staged.path, damage(content))
    with pytest.raises(CorruptCheckpointError, match=staged.path):
        next(RestoredOutput(staged, files).batches())


def test_damaged_file_is_read_from_its_copy_and_said(store: MemoryStore) -> None:
    said: list[str] = []
    held = HeldOutput(AttemptStagedFiles(store, 1, "out", 0), 1 << 20)
    held.add(rows(1, 2, 3))
    held.freeze(1)
    staged = held.stage()
    for content in (b"", store.read(staged.path)[:-9], None):
        store.delete([staged.path])
        if content is not None:
            store.create(staged.path, content)
        restored = RestoredOutput(staged, AttemptStagedFiles(store, 2, "out", 0, said.append))
        assert pa.Table.from_batches(restored.batches()).num_rows == 3
    assert len(said) == 3
    assert all(staged.path in problem for problem in said)


def test_what_was_not_sent_stays_in_memory_when_the_rest_is_written(
    store: MemoryStore, files: AttemptStagedFiles
) -> None:
    """Reading it back from the file would cost more than sending it."""
    batches = [rows(n) for n in range(10)]
    held = HeldOutput(files, memory_bytes_max=16 * batches[0].nbytes)
    for batch in batches[:4]:
        held.add(batch)
    assert len(held.in_memory_from(3)) == 1  # three were sent
    held.add(batches[4])  # more than a quarter
    assert held.in_memory_from(2) == []
    assert held.in_memory_from(3) == batches[3:5]
    for batch in batches[5:]:
        held.add(batch)
    held.freeze(1)
    staged = held.stage()
    assert list(held.batches_from(1)) == batches[1:]
    assert values(held) == values(RestoredOutput(staged, files)) == [b"%d" % n for n in range(10)]
    store.delete([staged.path])
    assert list(held.batches_from(3)) == batches[3:]


class BeginsAnew(HeldOutput):
    """The sender's transaction is given up, and it begins anew, right after its count was looked at."""

    @property
    def _sent(self) -> int:
        sent, self._count_sent = self._count_sent, 0
        return sent

    @_sent.setter
    def _sent(self, count: int) -> None:
        self._count_sent = count


def test_a_sender_that_begins_anew_while_rows_are_let_go_finds_all_of_them(files: AttemptStagedFiles) -> None:
    batches = [rows(n) for n in range(5)]
    held = BeginsAnew(files, memory_bytes_max=16 * batches[0].nbytes)
    for batch in batches[:4]:
        held.add(batch)
    assert len(held.in_memory_from(3)) == 1
    held.add(batches[4])  # more than a quarter
    assert held.in_memory_from(3) == batches[3:]
    assert held.in_memory_from(0) == []
    held.freeze(1)
    held.stage()
    assert list(held.batches_from(0)) == batches


def test_what_nobody_sends_does_not_stay_in_memory(files: AttemptStagedFiles) -> None:
    each = rows(0).nbytes
    held = HeldOutput(files, memory_bytes_max=8 * each)
    for n in range(6):
        held.add(rows(n))
    assert len(held.in_memory_from(0)) == 6
    for n in range(6, 9):
        held.add(rows(n))  # the third time that three are written: nine are too many
    assert held.in_memory_from(0) == []
    held.add(rows(9))
    assert len(held.in_memory_from(9)) == 1


def test_output_is_written_long_before_memory_is_full() -> None:
    """Goal: out of the CPU's cache; and what was sent is let go of while more comes."""
    folder = MemoryStore()
    held = HeldOutput(AttemptStagedFiles(folder, 1, "out", 0), 1 << 30)
    value = b"x" * (1 << 20)
    batch = pa.RecordBatch.from_pylist([{"topic": "t", "partition": 0, "value": value}] * 3, PRODUCE_SCHEMA)
    for sent in range(12):
        held.in_memory_from(sent)
        held.add(batch)
    assert held.memory_bytes < 13 << 20 < held.bytes
