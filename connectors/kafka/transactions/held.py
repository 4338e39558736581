"""Output held back between a barrier and its commit: in memory while it is small, durable once staged."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from onceflow.connectors.kafka.transactions.staged_file import StagedFileWriter, checksum, read_rows
from onceflow.runtime.contracts import CopiedFiles, StagedFiles
from onceflow.runtime.errors import CorruptCheckpointError, Retryable

_PARTS = 4
"""At most this part of what may be in memory is written at a time: one fourth."""
_WRITTEN_BYTES = 8 << 20
"""The most bytes that are written at a time: so they are written out of the CPU's cache, and what was sent is
let go of soon."""


@dataclass(frozen=True, slots=True)
class StagedOutput:
    """A staged file as the manifest remembers it: see staged_file.py."""

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
        with self._open() as file:
            yield from read_rows(file, self._staged.bytes)

    def _open(self) -> BinaryIO:
        """The file, or its copy, read through before the first row is sent: a damaged one must not go out
        in part. Raises CorruptCheckpointError."""
        try:
            return self._checked(self._files.open(self._staged.path))
        except (CorruptCheckpointError, OSError) as error:
            files = self._files
            if isinstance(files, CopiedFiles) and (copy := files.open_copy(self._staged.path)) is not None:
                with contextlib.suppress(CorruptCheckpointError, OSError):
                    whole = self._checked(copy)
                    files.healed(str(error))
                    return whole
            raise

    def _checked(self, file: BinaryIO) -> BinaryIO:
        """The file, at its start again. Closed, with CorruptCheckpointError, if its checksum is wrong."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(file)
            crc32, size = checksum(file)
            if (crc32, size) != (self._staged.crc32, self._staged.bytes):
                raise CorruptCheckpointError(
                    f"staged output {self._staged.path} is damaged: {size} bytes with CRC-32 {crc32:08x}, "
                    f"the checkpoint says {self._staged.bytes} bytes with {self._staged.crc32:08x}"
                )
            file.seek(0)
            stack.pop_all()
        return file


class HeldOutput:
    """Rows written since the last barrier; frozen by `freeze`, durable after `stage`.

    `add` writes to the staged file, on the caller's thread, each time that 8 MiB have come, or a quarter of
    `memory_bytes_max` if that is less. What was sent already needs no memory then; the rest stays, unless it
    is more than `memory_bytes_max`. An Output of transactions.py once it is staged.
    """

    def __init__(self, files: StagedFiles, memory_bytes_max: int) -> None:
        self._files = files
        self._memory_bytes_max = memory_bytes_max
        self._written_bytes = min(memory_bytes_max // _PARTS, _WRITTEN_BYTES)
        self._in_memory: tuple[int, list[pa.RecordBatch]] = (0, [])
        """The number of the first batch that is in memory, and all from there on."""
        self._count = 0
        self._written = 0
        """Batches that the file has, from the first on."""
        self._sent = 0
        """Batches that were sent ahead, as far as is known, from the first on."""
        self._bytes_to = [0]
        """The bytes of all batches before the n-th, for each n."""
        self._rows = 0
        self._checkpoint_id: int | None = None
        self._file: StagedFileWriter | None = None
        self._staged: StagedOutput | None = None
        self._lost: BaseException | None = None
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        """Written so far, in memory and spilled."""
        return self._bytes_to[-1]

    @property
    def memory_bytes(self) -> int:
        """The bytes of the batches that are in memory."""
        return self._bytes_from(self._in_memory[0])

    @property
    def unsent_bytes(self) -> int:
        """The bytes of the batches that were not sent ahead yet, as far as is known."""
        return self._bytes_from(self._sent)

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
        self._bytes_to.append(self.bytes + rows.nbytes)
        if self._bytes_from(self._written) > self._written_bytes:
            self._spill()

    def freeze(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def stage(self) -> StagedOutput:
        """Make it durable; does it once however often it is called.

        If that fails (a full disk), it may be called again, for the next checkpoint. Rows that are only in
        a file that can't be finished are lost: then every later call fails, too, until the attempt is
        restarted and makes them anew.
        """
        with self._lock:
            if self._lost is not None:
                raise Retryable(f"a spilled file could not be finished: {self._lost}")
            if self._staged is None:
                was_spilled = self._file is not None
                try:
                    self._staged = self._write_file()
                except BaseException as error:
                    self._file, self._written = None, 0  # never go on in a file cut short
                    self._lost = error if self._in_memory[0] else None
                    raise
                if was_spilled:
                    self._forget_sent()
            return self._staged

    def _write_file(self) -> StagedOutput:
        file = self._write()
        crc32, size = file.close()
        return StagedOutput(self.checkpoint_id, file.path, self._rows, size, crc32)

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.batches_from(0)

    @property
    def batch_count(self) -> int:
        return self._count

    def batches_from(self, start: int) -> Iterator[pa.RecordBatch]:
        """See ahead.AheadOutput. The file, like the memory, has the batches as they were added."""
        assert self._staged is not None, "only durable output is sent"
        first, kept = self._in_memory
        if start >= first:
            return iter(kept[start - first :])
        return itertools.islice(RestoredOutput(self._staged, self._files).batches(), start, None)

    def in_memory_from(self, start: int) -> Sequence[pa.RecordBatch]:
        """See ahead.AheadOutput; another thread than the task's may call it. Empty if some of what is
        asked for is not in memory any more."""
        self._sent = start
        first, kept = self._in_memory
        return kept[start - first :] if start >= first else []

    def _spill(self) -> None:
        self._write()
        self._forget_sent()
        if self.memory_bytes > self._memory_bytes_max:
            self._in_memory = (self._count, [])

    def _write(self) -> StagedFileWriter:
        """What the file does not have yet."""
        if self._file is None:
            self._file = StagedFileWriter(*self._files.create("output.arrows"))
        first, kept = self._in_memory
        for rows in kept[self._written - first :]:
            self._file.write(rows)
        self._written = self._count
        return self._file

    def _forget_sent(self) -> None:
        sent, (first, kept) = self._sent, self._in_memory  # once: the sender may begin anew meanwhile
        if sent > first:
            self._in_memory = (sent, kept[sent - first :])

    def _bytes_from(self, start: int) -> int:
        return self.bytes - self._bytes_to[start]
