"""PartsWriter: the rows of one subtask into hidden files, one for each folder at a time."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.connectors.files.buckets import Bucket, Buckets
from onceflow.connectors.files.file_format import FileEncoder, FileFormat
from onceflow.connectors.files.rolling import RollPolicy
from onceflow.connectors.files.written.compaction import form_of, waiting_path
from onceflow.connectors.files.written.open_store import part_name
from onceflow.connectors.files.written.output_store import HiddenFile, OutputStore
from onceflow.connectors.files.written.part import Part, hidden_name
from onceflow.connectors.files.written.plan import Promise
from onceflow.runtime.contracts import Committable, PreCommit, SinkContext
from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Records

GATHERED_BYTES_MAX = 128 << 20
"""What all encoders of a writer may hold in memory together."""
_WAITING_MAX = 32
"""How many files that have ended may wait for the barrier unfinished: each keeps a descriptor."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What a sink says of its writers."""

    form: FileFormat
    buckets: Buckets
    roll: RollPolicy
    open_files_max: int
    joins: bool = False
    """Whether small files wait to be joined."""


class PartsWriter:
    """A SinkWriter and a WatermarkedWriter. The committer shows what it promises."""

    def __init__(self, context: SinkContext, settings: WriterSettings, store: OutputStore) -> None:
        self._context = context
        self._settings = settings
        self._store = store
        self._schema = settings.buckets.file_schema(context.schema)
        self._goes_on = not settings.roll.on_checkpoint and settings.form.has_prefix and store.keeps_prefixes
        """Whether a file may stay open over a checkpoint."""
        self._open: dict[str, _OpenPart] = {}
        """Files that rows are written to, by folder; the one that was written to last comes last."""
        self._ended: list[_OpenPart] = []
        """Files that have ended since the last barrier."""
        self._watermark_ms: int | None = WATERMARK_MIN_MS
        self._barrier = context.restored_checkpoint_id
        self._numbers = itertools.count()
        self._hidden_numbers = itertools.count()
        self._writer = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()
        """Around the parts below, which the task's thread and the commit thread use."""
        self._held: list[tuple[int, _OpenPart]] = []
        """Files that are in no committed checkpoint, with the first checkpoint that has them whole."""

    def recover(self, committables: Sequence[Committable]) -> None:
        assert not committables, "the committer has committed them before a slot was started"

    def on_watermark(self, time_ms: int) -> None:
        self._watermark_ms = time_ms

    def on_idle(self) -> None:
        self._watermark_ms = None

    def write(self, records: Records) -> None:
        if not len(records):
            return
        for bucket in self._settings.buckets.split(records):
            self._write(bucket)
        while sum(part.encoder.gathered_bytes for part in self._open.values()) > GATHERED_BYTES_MAX:
            max(self._open.values(), key=lambda part: part.encoder.gathered_bytes).encoder.flush()

    def _write(self, bucket: Bucket) -> None:
        part = self._open.pop(bucket.folder, None) or self._begin(bucket)
        self._open[bucket.folder] = part
        part.write(bucket.batch, self._context.clock.monotonic_ms())
        if part.size >= self._settings.roll.size_bytes:
            self._end(bucket.folder)
        elif len(self._open) > self._settings.open_files_max:
            self._end(next(iter(self._open)))

    def _begin(self, bucket: Bucket) -> _OpenPart:
        context, form = self._context, self._settings.form
        first, number = self._barrier + 1, next(self._numbers)
        name = part_name(context.uid, first, context.subtask, number, context.lineage, form.ending)
        hidden = hidden_name(context.attempt, context.subtask, self._writer, next(self._hidden_numbers))
        path = f"{bucket.folder}/{name}" if bucket.folder else name
        if self._settings.joins:
            path = waiting_path(context.lineage, context.uid, form_of(form, self._schema), path)
        file = self._store.create(path, hidden, context.attempt)
        encoder = form.encoder(file, self._schema)
        return _OpenPart(path, file, encoder, context.clock.monotonic_ms(), bucket.span)

    def _end(self, folder: str) -> None:
        self._ended.append(self._open.pop(folder))
        if len(self._ended) >= _WAITING_MAX:
            self._ended[-_WAITING_MAX].finish()

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        now_ms = self._context.clock.monotonic_ms()
        for folder in [name for name, part in self._open.items() if self._is_over(part, now_ms)]:
            self._ended.append(self._open.pop(folder))
        cuts = [part.cut(checkpoint_id) for part in self._open.values()]
        with self._lock:
            self._held += [(checkpoint_id, part) for part in self._ended]
            held = [part for _, part in self._held]
        self._ended.clear()
        self._barrier, self._numbers = checkpoint_id, itertools.count()
        told = [part.span for part in (*held, *self._open.values()) if part.span is not None]
        return _Promised(self._context, checkpoint_id, held, cuts, self._watermark_ms, dict(told))

    def _is_over(self, part: _OpenPart, now_ms: float) -> bool:
        time_ms = self._watermark_ms
        return (
            not self._goes_on
            or self._settings.roll.ends(now_ms - part.begun_ms, now_ms - part.written_ms)
            or (time_ms is not None and part.span is not None and part.span[1] <= time_ms)
            or time_ms == WATERMARK_MAX_MS
        )

    def commit(self, checkpoint_id: int) -> None:
        """The committer has shown them."""
        with self._lock:
            self._held = [(n, part) for n, part in self._held if n > checkpoint_id]

    def close(self) -> None:
        for part in (*self._open.values(), *self._ended):
            part.file.close()
        self._store.close()


@dataclass(slots=True)
class _OpenPart:
    """A file on its way: rows are written to it as they come."""

    name: str
    file: HiddenFile
    encoder: FileEncoder
    begun_ms: float
    span: tuple[str, int] | None
    written_ms: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Around `finish`: an aborted checkpoint's may run while the next one's does."""
    _whole: Part | None = None
    _failure: BaseException | None = None

    @property
    def size(self) -> int:
        return self.file.size + self.encoder.gathered_bytes

    def write(self, batch: pa.RecordBatch, now_ms: float) -> None:
        self.encoder.write(batch)
        self.written_ms = now_ms

    def cut(self, checkpoint_id: int) -> Callable[[], Part]:
        self.encoder.flush()
        return self.file.cut(checkpoint_id)

    def finish(self) -> Part:
        """Make it durable; does it once however often it is called.

        Raises OSError; then Retryable each time, until the attempt is restarted and makes the rows anew.
        """
        with self._lock:
            if self._failure is not None:
                raise Retryable(f"{self.name} could not be finished: {self._failure}")
            if self._whole is None:
                try:
                    self.encoder.finish()
                    self._whole = self.file.finish()
                except BaseException as error:
                    self._failure = error
                    raise
            return self._whole


@dataclass(frozen=True, slots=True)
class _Promised:
    """See contracts.PreCommit."""

    context: SinkContext
    checkpoint_id: int
    ended: Sequence[_OpenPart]
    cuts: Sequence[Callable[[], Part]]
    watermark_ms: int | None
    folders: dict[str, int]

    def stage(self) -> Committable:
        promise = Promise(
            whole=[part.finish() for part in self.ended],
            open=[cut() for cut in self.cuts],
            watermark_ms=self.watermark_ms,
            folders=self.folders,
        )
        owner = str(self.context.subtask)
        return Committable(self.context.uid, owner, self.checkpoint_id, promise.as_json())
