"""Rows that wait, durable, in the checkpoint folder until their checkpoint is: then they are handed on.

What a sink needs whose output is a call and no place: printing rows, collecting them, the user's own
function. The rows of a checkpoint are in files that its committables name, so whoever commits it, after a
kill too, gets the same rows.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pyarrow as pa
from isal import isal_zlib  # zlib's numbers, at four times its speed

from onceflow.runtime.contracts import Committable, CopiedFiles, PromisedFiles, SinkContext, StagedFiles
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.records import Records, concatenated

MEMORY_BYTES_MAX = 16 << 20
"""Rows above this go to a file before the barrier."""
BATCH_ROWS_MAX = 100_000
"""How many rows small batches are gathered up to. One that has more came so, and stays whole."""
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RowFile:
    """A staged file with rows, as the manifest remembers it."""

    path: str
    rows: int
    bytes: int
    crc32: int

    def batches(self, files: PromisedFiles) -> Iterator[pa.RecordBatch]:
        """The rows. The file, or its copy, is read through before the first of them: nothing of a damaged one
        is handed on. Raises CorruptCheckpointError."""
        with self._open(files) as file:
            yield from pa.ipc.open_stream(file)

    def check(self, files: PromisedFiles) -> None:
        """Read the file, or its copy, through. Raises CorruptCheckpointError, OSError."""
        self._open(files).close()

    def _open(self, files: PromisedFiles) -> BinaryIO:
        try:
            return self._checked(files.open(self.path))
        except (CorruptCheckpointError, OSError) as error:
            if isinstance(files, CopiedFiles) and (copy := files.open_copy(self.path)) is not None:
                with contextlib.suppress(CorruptCheckpointError, OSError):
                    whole = self._checked(copy)
                    files.healed(str(error))
                    return whole
            raise

    def _checked(self, file: BinaryIO) -> BinaryIO:
        with contextlib.ExitStack() as stack:
            stack.enter_context(file)
            crc32 = size = 0
            while block := file.read(_READ_BYTES):
                crc32, size = isal_zlib.crc32(block, crc32), size + len(block)
            if (crc32, size) != (self.crc32, self.bytes):
                raise CorruptCheckpointError(
                    f"staged rows {self.path} are damaged: {size} bytes with CRC-32 {crc32:08x}, the "
                    f"checkpoint says {self.bytes} bytes with {self.crc32:08x}"
                )
            file.seek(0)
            stack.pop_all()
        return file


def row_files(committable: Committable) -> list[RowFile]:
    """The files that a StagedRowsWriter's committable names, in the order of their rows."""
    return [RowFile(**each) for each in committable.payload["files"]]


def are_row_files(committable: Committable) -> bool:
    """Whether a StagedRowsWriter made this committable, and not a sink of another kind."""
    files = committable.payload.get("files")
    return (
        isinstance(files, list)
        and [each.get("path") for each in files if isinstance(each, dict)] == list(committable.paths)
        and all(each.keys() == RowFile.__dataclass_fields__.keys() for each in files)
    )


class StagedRowsWriter:
    """The rows of one writer between its barriers. Not a whole SinkWriter: what a commit does is the
    sink's."""

    def __init__(self, context: SinkContext, memory_bytes_max: int = MEMORY_BYTES_MAX) -> None:
        self._context = context
        self._memory_bytes_max = memory_bytes_max
        self._lock = threading.Lock()
        """Around what the task's thread and the commit thread use: the two below."""
        self._open = self._new_rows()
        self._held: list[tuple[int, _HeldRows]] = []
        """Rows that are in no committed checkpoint, with the first checkpoint that has them."""

    def write(self, records: Records) -> None:
        if len(records):
            self._open.add(records.batch)

    def pre_commit(self, checkpoint_id: int) -> _PreCommit:
        with self._lock:
            if self._open.has_rows:
                self._held.append((checkpoint_id, self._open))
                self._open = self._new_rows()
            held = [rows for _, rows in self._held]
        return _PreCommit(self._context, checkpoint_id, held)

    def promised(self, checkpoint_id: int) -> list[RowFile]:
        """The rows of this checkpoint, which is durable."""
        with self._lock:
            return [file for n, rows in self._held if n <= checkpoint_id for file in rows.staged]

    def rows(self, checkpoint_id: int) -> Iterator[pa.RecordBatch]:
        """The rows of this checkpoint, whose barrier has come, whether they are in files or in memory. They
        stay until they are forgotten."""
        with self._lock:
            held = [rows for n, rows in self._held if n <= checkpoint_id]
        for rows in held:
            yield from rows.batches()

    def forget(self, checkpoint_id: int) -> None:
        """This checkpoint is committed."""
        with self._lock:
            self._held = [(n, rows) for n, rows in self._held if n > checkpoint_id]

    def _new_rows(self) -> _HeldRows:
        return _HeldRows(self._context.files, self._context.schema, self._memory_bytes_max)


class CommittedElsewhere:
    """The SinkWriter of a CommittingSink: the driver's committer hands the rows on."""

    def __init__(self, context: SinkContext) -> None:
        self._rows = StagedRowsWriter(context)

    def recover(self, committables: Sequence[Committable]) -> None:
        assert not committables, "the committer has committed them before a slot was started"

    def write(self, records: Records) -> None:
        self._rows.write(records)

    def pre_commit(self, checkpoint_id: int) -> _PreCommit:
        return self._rows.pre_commit(checkpoint_id)

    def commit(self, checkpoint_id: int) -> None:
        self._rows.forget(checkpoint_id)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True, slots=True)
class _PreCommit:
    """See contracts.PreCommit."""

    context: SinkContext
    checkpoint_id: int
    held: Sequence[_HeldRows]

    def stage(self) -> Committable:
        files = [file for rows in self.held for file in rows.stage()]
        payload: Mapping[str, Any] = {"files": [asdict(file) for file in files]}
        owner, paths = str(self.context.subtask), [file.path for file in files]
        return Committable(self.context.uid, owner, self.checkpoint_id, payload, paths)


class _HeldRows:
    """The rows between two barriers. `add` is called before the barrier, `stage` after it."""

    def __init__(self, files: StagedFiles, schema: pa.Schema, memory_bytes_max: int) -> None:
        self._files = files
        self._schema = schema
        self._memory_bytes_max = memory_bytes_max
        self._lock = threading.Lock()
        """Around `stage`: an aborted checkpoint's may run while the next one's does."""
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0
        self._written: list[RowFile] = []
        self.staged: list[RowFile] = []
        """All of them, once they are durable."""

    @property
    def has_rows(self) -> bool:
        return bool(self._batches or self._written)

    def add(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > self._memory_bytes_max:
            self._write()

    def stage(self) -> list[RowFile]:
        """Make them durable; does it once however often it is called. Raises OSError: it may be called
        again."""
        with self._lock:
            if self._batches:
                self._write()
            self.staged = list(self._written)
            return self.staged

    def batches(self) -> Iterator[pa.RecordBatch]:
        for file in self._written:
            yield from file.batches(self._files)
        yield from _gathered(self._batches)

    def _write(self) -> None:
        path, file = self._files.create("rows.arrows")
        with file, _Summed(file) as summed, pa.ipc.new_stream(summed, self._schema) as stream:
            for batch in _gathered(self._batches):
                stream.write_batch(batch)
        rows = sum(batch.num_rows for batch in self._batches)
        self._written.append(RowFile(path, rows, summed.size, summed.crc32))
        self._batches, self._bytes = [], 0


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small batches together. What costs a store a round trip each (a statement, a request) would otherwise
    be as many as the batches that a slow stream trickles in; then a long commit lets more of them gather for
    the next, which takes longer still."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if held and rows + batch.num_rows > BATCH_ROWS_MAX:
            yield _joined(held)
            held, rows = [], 0
        held.append(batch)
        rows += batch.num_rows
    if held:
        yield _joined(held)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return concatenated([Records(batch) for batch in batches]).batch


class _Summed:
    """A file to write to that knows its size and its CRC-32."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc32 = self.size = 0

    def __enter__(self) -> _Summed:
        return self

    def __exit__(self, *_: object) -> None:
        """Whoever has opened the file closes it."""

    def write(self, block: bytes) -> int:
        content = memoryview(block)
        self.crc32 = isal_zlib.crc32(content, self.crc32)
        self.size += len(content)
        self._file.write(content)
        return len(content)

    def flush(self) -> None:
        """What is not closed is not durable."""
