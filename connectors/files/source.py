"""FileSource: the records of files, on any file system that fsspec knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from onceflow.connectors.bad_records import Tolerance, TolerantSource
from onceflow.connectors.files.avro_files import AvroFiles
from onceflow.connectors.files.batches import FilePlanner
from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.enumerator import FileEnumerator
from onceflow.connectors.files.file_format import DescribingFormat, FileFormat, TolerantFormat
from onceflow.connectors.files.file_split import FileSplit
from onceflow.connectors.files.finished_files import FinishedFiles
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.parquet_files import Parquet
from onceflow.connectors.files.place import Place
from onceflow.connectors.files.reader import FileReader
from onceflow.runtime.arguments import PathText, path_text
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, ReaderContext, Sink, SplitState
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import DataLossError, GraphError, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.plain_types import plain_schema
from onceflow.runtime.types.record_types import arrow_schema

FORMATS: Mapping[str, FileFormat] = {form.name: form for form in (JsonLines(), Csv(), Parquet(), AvroFiles())}


@dataclass(frozen=True)
class FileSource(TolerantSource):
    """A Source, a ProjectableSource, a PruningSource and a BatchedSource. A split is a file, or a piece of a
    large one, read by one slot.

    With `watch_ms` new files are found while it runs; else it ends with those that are there at the first
    start.
    """

    place: Place
    form: FileFormat
    all_columns: pa.Schema
    record_type: type | None = None
    watch_ms: int | None = None
    dead_letters: Sink | None = None
    errors_tolerance: Tolerance = "none"
    columns: frozenset[str] | None = None
    """The columns that are read; None: all."""
    is_ended: bool = False
    """Whether a folder that would be watched is read once: `--until latest`."""

    def __post_init__(self) -> None:
        self.settle_tolerance()

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([f for f in self.all_columns if self.columns is None or f.name in self.columns])

    @property
    def can_pause(self) -> bool:
        """See PausableSource."""
        return True

    @property
    def is_bounded(self) -> bool:
        return self.watch_ms is None or self.is_ended

    def project(self, columns: frozenset[str]) -> FileSource:
        return replace(self, columns=columns)

    def ended(self, until: Json) -> FileSource:
        """See EndableSource: with the files that are whole when the job starts."""
        if until != "latest":
            raise OptionError(
                "files have no offsets, and no time that all file systems tell alike: write latest, for the "
                "files that are there"
            )
        return replace(self, is_ended=True)

    def open_enumerator(self, job: str, clock: Clock) -> FileEnumerator:
        cuts = partial(self.form.cuts, self.place)
        return FileEnumerator(self.place, self.watch_ms, clock, cuts, self.is_ended)

    def open_reader(self, context: ReaderContext) -> FileReader:
        if self.tolerates_bad and isinstance(self.form, TolerantFormat):
            decoder = self.form.tolerant_decoder(self.schema)
        else:
            decoder = self.form.decoder(self.schema)
        return FileReader(self.place, decoder, self.schema, context)

    def open_planner(self, clock: Clock, limit: BatchLimit) -> FilePlanner:
        """See BatchedSource."""
        return FilePlanner(self.place, clock, partial(self.form.cuts, self.place), limit)

    def add_finished(self, finished: Json, splits: Sequence[SplitState]) -> Json:
        files = [FileSplit.from_state(split) for split in splits]
        read = [(file.path, file.file_version) for file in files if not file.is_changed]
        return FinishedFiles(finished).with_files(read)


@explained
def files_source(
    url: PathText,
    type: Any = None,
    format: str | Any = None,
    watch: str | int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    dead_letters: Sink | None = None,
    errors_tolerance: Tolerance = "none",
) -> FileSource:
    """What `job.from_files(...)` reads, with its options, as a source: to be a part of another one, as of a
    HybridSource; and with `errors_tolerance` "all", any sink as `dead_letters` for the records that can't be
    decoded. Raises GraphError and OptionError."""
    at = path_text(url)
    where = f"job.from_files({at!r})"
    place = Place(at, storage_options or {})
    of: Any = type
    found = file_format(format, at, where)
    if of is None:
        if not isinstance(found, DescribingFormat):
            raise GraphError(
                f"{where}: what is in the files has to be said: type=, as a dataclass, a NamedTuple or a "
                "pyarrow.Schema; only Parquet and Avro say it themselves"
            )
        of = _described_columns(found, place, where)
    if isinstance(of, pa.Schema):
        columns, record_type = plain_schema(of), None
    elif is_record_type(of):
        columns, record_type = arrow_schema(of), of
    else:
        raise GraphError(
            f"{where}: type={type_name(of)} is not a record type: give a dataclass, a NamedTuple or a "
            "pyarrow.Schema"
        )
    found.check(columns, where)
    watch_ms = None if watch is None else duration_ms(watch, "watch")
    form = found.of_type(record_type or columns)
    source = FileSource(place, form, columns, record_type, watch_ms, dead_letters, errors_tolerance)
    if source.tolerates_bad and not isinstance(found, TolerantFormat):
        raise OptionError(
            f'{where}: errors_tolerance="all" and dead_letters= are for records that can\'t be decoded while '
            f"their neighbours can, as in JSON lines, CSV and Avro: leave them out for {found.name}"
        )
    return source


def file_format(form: Any, url: str, where: str) -> FileFormat:
    """The format that is given by name or as an object; None: by the ending of the URL. Raises
    OptionError."""
    if form is None:
        endings = {ending: each for each in FORMATS.values() for ending in each.endings}
        found = [each for ending, each in endings.items() if url.endswith(ending)]
        if not found:
            raise OptionError(
                f"{where}: the name does not say of what format the files are: say format=, one of "
                f"{', '.join(FORMATS)}"
            )
        return found[0]
    if isinstance(form, str):
        if form not in FORMATS:
            raise OptionError(
                f"{where}: format={form!r} is none of {', '.join(FORMATS)}{nearest(form, FORMATS)}"
            )
        return FORMATS[form]
    if not hasattr(form, "decoder") or not hasattr(form, "endings"):
        raise OptionError(
            f"{where}: format={form!r}: give one of {', '.join(FORMATS)}, or Csv(delimiter=...)"
        )
    given: FileFormat = form
    return given


def _described_columns(form: DescribingFormat, place: Place, where: str) -> pa.Schema:
    files = list(place.files())
    if not files:
        raise GraphError(f"{where}: there is no file yet to tell the columns from: say type=")
    try:
        return plain_schema(form.columns_of(place, files[0]))
    except (DataLossError, OptionError, OSError) as error:
        raise GraphError(f"{where}: {error}") from error
