"""FileSink: rows into files of a folder, exactly once: a file for each writer and checkpoint, visible when
whole."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from onceflow.connectors.files.file_format import FileEncoder, FileFormat
from onceflow.connectors.files.output import OutputFolder
from onceflow.connectors.files.place import Place
from onceflow.connectors.files.source import FORMATS, file_format
from onceflow.runtime.contracts import Committable, CommitterContext, PreCommit, SinkContext
from onceflow.runtime.errors import Fenced, OptionError, Retryable
from onceflow.runtime.records import Records


@dataclass(frozen=True)
class FileSink:
    """A CommittingSink. Opens nothing when it is made.

    A file begins with the first row after a barrier and ends at the next one; it gets its name when the
    checkpoint is durable. So the checkpoint interval says how many files there are, and how late rows are
    seen.
    """

    place: Place
    form: FileFormat

    @property
    def plan_note(self) -> str:
        return "exactly once: a file for each subtask and checkpoint, renamed when that is durable"

    def check(self, schema: pa.Schema, uid: str) -> None:
        self.form.check(schema, f"sink {uid!r}")

    def open_writer(self, context: SinkContext) -> FileWriter:
        return FileWriter(self, context)

    def open_committer(self, context: CommitterContext) -> FileCommitter:
        return FileCommitter(OutputFolder(self.place, context.lineage, context.uid), context)


def file_sink(url: str, form: Any = "parquet", storage_options: Mapping[str, Any] | None = None) -> FileSink:
    """The sink of `stream.to_files(...)`. Raises OptionError."""
    where = f"to_files({url!r})"
    place = Place(url, storage_options or {})
    if any(letter in place.path for letter in "*?["):
        raise OptionError(f"{where}: name a folder: the names of the files in it are made by the sink")
    if any(place.path.endswith(ending) for each in FORMATS.values() for ending in each.endings):
        raise OptionError(
            f"{where} names a file, and there will be one for each subtask and checkpoint: name a folder, "
            'and say format="parquet", "jsonl" or "csv"'
        )
    return FileSink(place, file_format(form, "", where))


class FileWriter:
    """A SinkWriter."""

    def __init__(self, sink: FileSink, context: SinkContext) -> None:
        self._form = sink.form
        self._context = context
        self._folder = OutputFolder(sink.place, context.lineage, context.uid)
        self._numbers = itertools.count()
        self._open: _Part | None = None
        """The file of what was written since the last barrier; None: nothing was."""
        self._lock = threading.Lock()
        """Around the parts below, which the task's thread and the commit thread use."""
        self._held: list[tuple[int, _Part]] = []
        """Files that are in no committed checkpoint, with the first checkpoint that has them."""

    def recover(self, committables: Sequence[Committable]) -> None:
        assert not committables, "the committer has committed them before a slot was started"

    def write(self, records: Records) -> None:
        if not len(records):
            return
        if self._open is None:
            subtask, number = self._context.subtask, next(self._numbers)
            hidden, file = self._folder.create(self._context.attempt, subtask, number)
            encoder = self._form.encoder(file, self._context.schema)
            self._open = _Part(self._folder, hidden, file, encoder)
        self._open.write(records.batch)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        part, self._open = self._open, None
        with self._lock:
            if part is not None:
                subtask, ending = self._context.subtask, self._form.endings[0]
                part.name = self._folder.visible_name(checkpoint_id, subtask, ending)
                self._held.append((checkpoint_id, part))
            parts = [each for _, each in self._held]
        return _PreCommit(self._context, checkpoint_id, parts)

    def commit(self, checkpoint_id: int) -> None:
        """The committer has made them visible."""
        with self._lock:
            self._held = [(n, part) for n, part in self._held if n > checkpoint_id]

    def close(self) -> None:
        if self._open is not None:
            self._open.give_up()


class _Part:
    """One file on its way: rows are written to it as they come."""

    def __init__(self, folder: OutputFolder, hidden: str, file: BinaryIO, encoder: FileEncoder) -> None:
        self._folder = folder
        self._hidden = hidden
        self._file = file
        self._encoder = encoder
        self.name = ""
        """The name under which it will be seen; known at the barrier."""
        self._lock = threading.Lock()
        """Around `finish`: an aborted checkpoint's may run while the next one's does."""
        self._is_finished = False
        self._failure: BaseException | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        self._encoder.write(batch)

    def finish(self) -> tuple[str, str]:
        """Make it durable; does it once however often it is called. Its two names.

        Raises OSError; then Retryable each time, until the attempt is restarted and makes the rows anew.
        """
        with self._lock:
            if self._failure is not None:
                raise Retryable(f"{self.name} could not be finished: {self._failure}")
            if not self._is_finished:
                try:
                    self._encoder.finish()
                    self._folder.finish(self._file)
                except BaseException as error:
                    self._failure = error
                    raise
                self._is_finished = True
        return self._hidden, self.name

    def give_up(self) -> None:
        """Let go of the file: the next attempt deletes it."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class _PreCommit:
    """See contracts.PreCommit."""

    context: SinkContext
    checkpoint_id: int
    parts: Sequence[_Part]

    def stage(self) -> Committable:
        files = [list(part.finish()) for part in self.parts]
        owner = str(self.context.subtask)
        return Committable(self.context.uid, owner, self.checkpoint_id, {"files": files})


class FileCommitter:
    """A SinkCommitter. A commit that is repeated renames nothing twice: see OutputFolder."""

    def __init__(self, folder: OutputFolder, context: CommitterContext) -> None:
        self._folder = folder
        self._context = context
        self._seen: int | None = None

    def last_committed(self) -> int | None:
        self._seen = self._folder.last_committed()
        return self._seen

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        files = [(hidden, name) for each in committables for hidden, name in each.payload["files"]]
        if not files:
            return  # nothing to show: the ledger need not know of it
        if self._folder.last_committed() != self._seen:
            raise Fenced(f"a newer attempt has committed a checkpoint of sink {self._context.uid!r}")
        self._folder.commit(checkpoint_id, files)
        self._seen = checkpoint_id
        # Files of earlier attempts that are left now belong to no checkpoint: what was restored is committed
        # first.
        self._folder.sweep(self._context.attempt, checkpoint_id)

    def close(self) -> None:
        """Nothing is open."""
