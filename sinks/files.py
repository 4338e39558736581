"""FileSink: rows into files of folders, exactly once: nobody sees part of a file, or one that vanishes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from onceflow.connectors.files.buckets import Buckets, buckets, daily, every, hourly
from onceflow.connectors.files.file_format import FileFormat
from onceflow.connectors.files.place import Place
from onceflow.connectors.files.rolling import RollPolicy
from onceflow.connectors.files.source import FORMATS, file_format
from onceflow.connectors.files.written.commits import OutputCommits
from onceflow.connectors.files.written.compaction import CompactPolicy
from onceflow.connectors.files.written.joining import SmallFiles
from onceflow.connectors.files.written.open_store import begun_at, check_can_write, open_store, stays_open
from onceflow.connectors.files.written.plan import Promise
from onceflow.connectors.files.written.writer import PartsWriter, WriterSettings
from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.contracts import Committable, CommitterContext, SinkContext
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import Fenced, Indeterminate, OptionError
from onceflow.runtime.explained_calls import explained

__all__ = ["CompactPolicy", "FileSink", "RollPolicy", "daily", "every", "hourly"]


@explained
@dataclass(frozen=True)
class FileSink:
    """Writes rows to files below `url`: a folder of this machine or a mounted one, `s3://bucket/folder`, or
    `hdfs://host:port/folder`. A CommittingSink; opens nothing when it is made.

    A file is written hidden. Once a checkpoint is durable in which it has ended, it is seen, whole, under a
    name made of uid, checkpoint, subtask, number and job; whatever is killed, each row is in one file once.

    `format`: "parquet", "jsonl", "csv" or "avro", or `Csv(delimiter=";")`; `compression`: for Parquet
    "zstd" (the default), "snappy", "gzip", "lz4", "brotli" or "none", for JSON lines and CSV "gzip" or
    "zstd", for Avro "deflate" (the default), "snappy", "zstd" or "none".
    `partition_by`: which folder a row goes to: a column (`country=de`, which then is not in the file),
    `hourly()`, `daily()` or `every("15 min")` of event time or of a column, a polars expression, a function
    that makes a folder of each row of a pyarrow.RecordBatch, or a list of these. `roll`: when a file ends.
    `success_marker`: the name of an empty file, as "_SUCCESS", which a folder of a span of time gets once
    the watermark has passed its end and all its files are seen. `open_files_max`: with more folders at once
    the file ends that was written to least recently. `compact`: small files of a folder are joined before
    they are seen, by the driver; None: they are seen as they are. `storage_options` go to fsspec.
    """

    url: PathText
    format: Any = "parquet"
    partition_by: Any = None
    roll: RollPolicy = field(default_factory=RollPolicy)
    compression: str | None = None
    success_marker: str | None = None
    open_files_max: int = 100
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    compact: CompactPolicy | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", path_text(self.url))
        where = f"FileSink({self.url!r})"
        check_can_write(self.place, where)
        if any(letter in self.place.path for letter in "*?["):
            raise OptionError(f"{where}: name a folder: the names of the files in it are made by the sink")
        if any(self.place.path.endswith(ending) for each in FORMATS.values() for ending in each.endings):
            raise OptionError(
                f"{where} names a file, and there will be one for each subtask and checkpoint: name a "
                'folder, and say format="parquet", "jsonl", "csv" or "avro"'
            )
        if not isinstance(self.roll, RollPolicy):
            raise OptionError(f'{where}: roll={self.roll!r}: give RollPolicy(size="64 MiB"), or the like')
        if self.open_files_max < 1:
            raise OptionError(f"{where}: open_files_max={self.open_files_max!r} has to be 1 or more")
        self._check_marker(where)
        self._check_compact(where)
        assert self.form, "it raises OptionError"
        assert self.buckets, "it raises OptionError"

    def _check_marker(self, where: str) -> None:
        name = self.success_marker
        if name is None:
            return
        if not name or "/" in name or not name.startswith(("_", ".")):
            raise OptionError(
                f'{where}: success_marker={name!r}: give a name that begins with "_" or ".", such as '
                '"_SUCCESS": others would be read as a file of rows'
            )
        if not self.buckets.has_spans:
            raise OptionError(
                f"{where}: success_marker needs folders of spans of time, which are complete at some time: "
                "say partition_by=hourly(), daily() or every(...)"
            )

    def _check_compact(self, where: str) -> None:
        if self.compact is None:
            return
        if not isinstance(self.compact, CompactPolicy):
            raise OptionError(f"{where}: compact={self.compact!r}: give CompactPolicy(checkpoints=10)")
        if not self.roll.on_checkpoint:
            raise OptionError(
                f"{where}: compact= and RollPolicy(on_checkpoint=False) are two ways to the same larger "
                "files: leave one out"
            )

    @cached_property
    def place(self) -> Place:
        return Place(path_text(self.url), self.storage_options or {})

    @cached_property
    def buckets(self) -> Buckets:
        return buckets(self.partition_by, f"FileSink({self.url!r})")

    @cached_property
    def form(self) -> FileFormat:
        where = f"FileSink({self.url!r})"
        form = file_format(self.format, "", where)
        return form if self.compression is None else form.compressed(self.compression, where)

    @property
    def plan_note(self) -> str:
        is_open = self.form.has_prefix and not self.roll.on_checkpoint and stays_open(path_text(self.url))
        if self.compact is not None:
            return (
                f"exactly once: files of up to {self.compact.checkpoints} checkpoints are joined, and seen "
                "when the last one is durable"
            )
        when = "over checkpoints" if is_open else "with each checkpoint"
        return (
            f"exactly once: files end {when}, and are seen when the checkpoint in which they end is durable"
        )

    @property
    def takes_back(self) -> bool:
        """See TakingBackSink. Not with joined files: one may have rows of before and of later."""
        return self.compact is None

    def check(self, schema: pa.Schema, uid: str) -> None:
        where = f"sink {uid!r}"
        self.buckets.check(schema, where)
        self.form.check(self.buckets.file_schema(schema), where)

    def open_writer(self, context: SinkContext) -> PartsWriter:
        settings = WriterSettings(
            self.form, self.buckets, self.roll, self.open_files_max, joins=self.compact is not None
        )
        return PartsWriter(context, settings, open_store(self.place, context.lineage, context.uid))

    def open_committer(self, context: CommitterContext) -> FileCommitter:
        store = open_store(self.place, context.lineage, context.uid)
        small_files = SmallFiles(self.compact, self.form, self.buckets.file_schema(context.schema))
        commits = OutputCommits(store, context.attempt, self.success_marker, small_files)
        if not self.takes_back:
            return FileCommitter(commits, context.uid)
        return TakingBackFileCommitter(commits, context.uid, context.lineage)


def file_sink(
    url: PathText, form: Any = "parquet", storage_options: Mapping[str, Any] | None = None
) -> FileSink:
    """The sink of `stream.to_files(...)`. Raises OptionError."""
    return FileSink(url, form, storage_options=storage_options)


class FileCommitter:
    """A SinkCommitter. A commit that is repeated shows nothing twice: see OutputCommits."""

    def __init__(self, commits: OutputCommits, uid: str) -> None:
        self._commits = commits
        self._uid = uid

    def last_committed(self) -> int | None:
        return self._commits.last_committed()

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        with self._named(f"committing checkpoint {checkpoint_id}"):
            self._commits.commit(checkpoint_id, [Promise.from_json(each.payload) for each in committables])

    @contextlib.contextmanager
    def _named(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Fenced as error:
            raise Fenced(f"sink {self._uid!r}: {error}") from None
        except OSError as error:
            raise Indeterminate(
                f"sink {self._uid!r}: {doing}: {error}; it is tried again, see to the file system"
            ) from error

    def close(self) -> None:
        self._commits.close()


class TakingBackFileCommitter(FileCommitter):
    """A TakingBackCommitter."""

    def __init__(self, commits: OutputCommits, uid: str, lineage: str) -> None:
        super().__init__(commits, uid)
        self._lineage = lineage

    def take_back(self, checkpoint_id: int, went_back: WentBack, committables: Sequence[Committable]) -> None:
        promises = [Promise.from_json(each.payload) for each in committables]

        def begun(name: str) -> int | None:
            return begun_at(name, self._uid, self._lineage)

        with self._named(f"going back to checkpoint {went_back.to}"):
            self._commits.take_back(checkpoint_id, went_back.to, promises, begun)
