"""RecordWriter: rows in PRODUCE_SCHEMA as the records of Kafka's record batches, version 2 (KIP-98).

There are two: `record_write_compiled.py` with kernels, `record_write_arrays.py` without. Both write the same
bytes. `record_kernels.py` reads them; its docstring says how records look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from onceflow.runtime.kernels.compiled import kernels_loaded


@dataclass(frozen=True, slots=True)
class WrittenRecords:
    """The records of one batch, without its header."""

    content: pa.Buffer
    """The bytes of the records, not compressed."""
    after: int
    """The row that follows."""
    first_ms: int
    """The time of the first one, to which those of the others are relative."""
    latest_ms: int


class RecordWriter(Protocol):
    """Writes records of one RecordBatch after the other. One thread."""

    def take(self, rows: pa.RecordBatch, now_ms: int) -> None:
        """What is written from now on. `now_ms`: the time of rows that have no timestamp."""
        ...

    def write(self, runs: Sequence[tuple[int, int]], room: int) -> list[WrittenRecords]:
        """Write the first rows of each of these runs (start, stop), in order and not empty: as many as fit
        into `room` bytes, the first one in any case. The bytes are valid until the next call."""
        ...


def open_record_writer(kernels: bool | None = None) -> RecordWriter:
    """`kernels`: whether to use them; None: where others have loaded numba. Alone they would not be worth
    that, for they gain little."""
    if kernels_loaded() if kernels is None else kernels:
        from onceflow.connectors.kafka.record_write_compiled import CompiledRecordWriter  # needs numba

        return CompiledRecordWriter()
    from onceflow.connectors.kafka.record_write_arrays import ArrayRecordWriter

    return ArrayRecordWriter()
