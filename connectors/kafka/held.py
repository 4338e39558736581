"""Output held back between a barrier and its commit: in memory while it is small, durable once staged."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pyarrow as pa
from isal import isal_zlib  # zlib's numbers, at four times its speed

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.runtime.contracts import StagedFiles
from onceflow.runtime.errors import CorruptCheckpointError, Retryable

_READ_BYTES = 1 << 20
_KEPT_IN_MEMORY_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """A staged file as the manifest remembers it: an Arrow IPC stream of PRODUCE_SCHEMA."""

    checkpoint_id: int
    path: str
    rows: int
    bytes: int
    crc32: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> StagedOutput:
        return StagedOutput(**value)


class RestoredOutput:
    """Output that a restored checkpoint promises. An Output of transactions.py."""

    def __init__(self, staged: StagedOutput, files: StagedFiles) -> None:
        self._staged = staged
        self._files = files

    @property
    def checkpoint_id(self) -> int:
        return self._staged.checkpoint_id

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._verify()
        with self._files.open(self._staged.path) as file, pa.ipc.open_stream(file) as stream:
            yield from stream

    def _verify(self) -> None:
        """Before the first row is sent: a damaged file must not go out in part."""
        crc32 = size = 0
        with self._files.open(self._staged.path) as file:
            while block := file.read(_READ_BYTES):
                crc32, size = isal_zlib.crc32(block, crc32), size + len(block)
        if (crc32, size) != (self._staged.crc32, self._staged.bytes):
            raise CorruptCheckpointError(
                f"staged output {self._staged.path} is damaged: {size} bytes with CRC-32 {crc32:08x}, the "
                "checkpoint "
                f"says {self._staged.bytes} bytes with {self._staged.crc32:08x}; start from an older "
                "checkpoint"
            )


class HeldOutput:
    """Rows written since the last barrier; frozen by `freeze`, durable after `stage`.

    `add` spills to a staged file beyond `memory_bytes_max`, on the caller's thread. An Output of
    transactions.py once it is staged.
    """

    def __init__(self, files: StagedFiles, memory_bytes_max: int) -> None:
        self._files = files
        self._memory_bytes_max = memory_bytes_max
        self._in_memory: tuple[int, list[pa.RecordBatch]] = (0, [])
        """The number of the first batch that was not spilled, and all from there on."""
        self._count = 0
        self._memory_bytes = 0
        self._rows = 0
        self.bytes = 0
        """Written so far, in memory and spilled."""
        self._checkpoint_id: int | None = None
        self._file: _ChecksummedFile | None = None
        self._staged: StagedOutput | None = None
        self._lost: BaseException | None = None
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def checkpoint_id(self) -> int:
        assert self._checkpoint_id is not None, "frozen first"
        return self._checkpoint_id

    def add(self, rows: pa.RecordBatch) -> None:
        """The task's thread, before freeze."""
        assert self._checkpoint_id is None, "nothing is added after the barrier"
        self._in_memory[1].append(rows)
        self._count += 1
        self._rows += rows.num_rows
        added = rows.nbytes
        self._memory_bytes += added
        self.bytes += added
        if self._memory_bytes > self._memory_bytes_max:
            self._spill()

    def freeze(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def stage(self) -> StagedOutput:
        """Make it durable; does it once however often it is called.

        If that fails (a full disk), it may be called again, for the next checkpoint. Rows that were spilled
        into a file that can't be finished are gone from memory: then every later call fails, too, until
        the attempt is restarted and makes them anew.
        """
        with self._lock:
            if self._lost is not None:
                raise Retryable(f"a spilled file could not be finished: {self._lost}")
            if self._staged is None:
                in_memory, was_spilled = self._in_memory, self._file is not None
                is_small = not was_spilled and self._memory_bytes <= _KEPT_IN_MEMORY_BYTES
                try:
                    self._staged = self._write_file()
                except BaseException as error:
                    self._in_memory, self._file = in_memory, None  # never go on in a file cut short
                    self._lost = error if was_spilled else None
                    raise
                if is_small:
                    self._in_memory = in_memory
            return self._staged

    def _write_file(self) -> StagedOutput:
        self._spill()
        assert self._file is not None
        crc32, size = self._file.close()
        return StagedOutput(self.checkpoint_id, self._file.path, self._rows, size, crc32)

    def batches(self) -> Iterator[pa.RecordBatch]:
        staged = self._staged
        assert staged is not None, "only durable output is sent"
        first, kept = self._in_memory
        return iter(kept) if not first else RestoredOutput(staged, self._files).batches()

    @property
    def batch_count(self) -> int:
        return self._count

    def batches_from(self, start: int) -> Iterator[pa.RecordBatch]:
        """See ahead.AheadOutput. The file, like the memory, has the batches as they were added."""
        return iter(()) if start == self._count else itertools.islice(self.batches(), start, None)

    def in_memory_from(self, start: int) -> Sequence[pa.RecordBatch]:
        """See ahead.AheadOutput; another thread than the task's may call it. Empty if some of what is
        asked for was spilled."""
        first, kept = self._in_memory
        return kept[start - first :] if start >= first else []

    def _spill(self) -> None:
        if self._file is None:
            self._file = _ChecksummedFile(*self._files.create("output.arrows"))
        for rows in self._in_memory[1]:
            self._file.write(rows)
        self._in_memory = (self._count, [])
        self._memory_bytes = 0


class _ChecksummedFile:
    """An Arrow IPC stream whose size and CRC-32 are known when it is closed."""

    def __init__(self, path: str, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._crc32 = 0
        self._size = 0
        self._stream = pa.ipc.new_stream(pa.PythonFile(_Tee(self), mode="w"), PRODUCE_SCHEMA)

    def write(self, rows: pa.RecordBatch) -> None:
        self._stream.write_batch(rows)

    def close(self) -> tuple[int, int]:
        self._stream.close()
        self._file.close()
        return self._crc32, self._size

    def take(self, block: bytes) -> int:
        self._crc32 = isal_zlib.crc32(block, self._crc32)
        self._size += len(block)
        self._file.write(block)
        return len(block)


class _Tee:
    """What pyarrow needs of a file it writes to."""

    closed = False

    def __init__(self, target: _ChecksummedFile) -> None:
        self._target = target

    def write(self, block: bytes) -> int:
        return self._target.take(block)

    def flush(self) -> None: ...
