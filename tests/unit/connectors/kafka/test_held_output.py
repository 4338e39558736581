"""Output held back: spilled, staged, read again, and refused when a disk has altered it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.held import HeldOutput, RestoredOutput, StagedOutput
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
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
    store.delete([staged.path])
    store.create(staged.path, damage(content))
    with pytest.raises(CorruptCheckpointError, match=staged.path):
        next(RestoredOutput(staged, files).batches())
