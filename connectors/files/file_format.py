"""FileFormat: how rows lie in a file. A description: immutable, picklable, opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from onceflow.connectors.bad_records import bad_record_error
from onceflow.connectors.files.place import Place, StoredFiles
from onceflow.runtime.errors import BadRecordError
from onceflow.runtime.records import Int64s


class BadRecord(NamedTuple):
    """A record of a piece that can't be decoded. `record`: which one of the piece's, those that can be
    decoded counted, too; `place`: its byte in the file."""

    record: int
    place: int
    value: bytes
    reason: str


class Piece(NamedTuple):
    """Some records of a file, and where the first one is: so many records behind a place from which reading
    can begin. Each is a row of `batch` or in `bad`."""

    at: int
    """The place: a byte, or the number of a row group."""
    row: int
    batch: pa.RecordBatch
    bad: tuple[BadRecord, ...] = ()

    @property
    def records(self) -> int:
        return int(self.batch.num_rows) + len(self.bad)

    @property
    def kept(self) -> Int64s:
        """Which of the records the rows are."""
        return np.delete(np.arange(self.records, dtype=np.int64), [each.record for each in self.bad])

    def cut(self, count: int) -> tuple[Piece, Piece]:
        """The first so many records, and the others."""
        before = tuple(each for each in self.bad if each.record < count)
        behind = tuple(each._replace(record=each.record - count) for each in self.bad if each.record >= count)
        rows = min(count, self.records) - len(before)
        return (
            Piece(self.at, self.row, self.batch.slice(0, rows), before),
            Piece(self.at, self.row + count, self.batch.slice(rows), behind),
        )


class FileDecoder(Protocol):
    """Reads files of one format, for one reader."""

    def pieces(self, place: StoredFiles, path: str, at: int, end: int = 0) -> Iterator[Piece]:
        """The rows of a file from this place on (0: the beginning) up to this one (0: its end), in order.

        Raises BadRecordError naming file and record, DataLossError for a file that is cut off or damaged.
        """
        ...


def bad_in_file(path: str, bad: BadRecord) -> BadRecordError:
    """What ends the job where bad records have no place to go."""
    return bad_record_error(f"{path}: the record at byte {bad.place}", bad.reason)


@runtime_checkable
class TolerantFormat(Protocol):
    """A FileFormat in which a record can be bad while its neighbours are not."""

    def tolerant_decoder(self, schema: pa.Schema) -> FileDecoder:
        """A decoder as `FileFormat.decoder` gives, but what can't be decoded is in `Piece.bad`."""
        ...


@runtime_checkable
class DescribingFormat(Protocol):
    """A FileFormat whose files say which columns they have."""

    def columns_of(self, place: StoredFiles, path: str) -> pa.Schema:
        """The columns of a file. Raises DataLossError if it is none of this format."""
        ...


class WritableFile(Protocol):
    """What an encoder writes to. `write` takes what is like bytes."""

    closed: bool

    def write(self, content: Any) -> int: ...

    def flush(self) -> None: ...


class FileEncoder(Protocol):
    """Writes one file. One thread at a time calls it."""

    @property
    def gathered_bytes(self) -> int:
        """What was given to it and is not in the file yet: memory."""
        ...

    def write(self, batch: pa.RecordBatch) -> None: ...

    def flush(self) -> None:
        """Write what was gathered. If the format has `has_prefix`, the file is a whole one up to here."""
        ...

    def finish(self) -> None:
        """Write what comes at the end. The file itself stays open."""
        ...


class FileFormat(Protocol):
    """The description of a format of files."""

    @property
    def name(self) -> str: ...

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the names of its files."""
        ...

    @property
    def ending(self) -> str:
        """The ending of the names of files that are written."""
        ...

    @property
    def has_prefix(self) -> bool:
        """Whether a file is a whole one after each `FileEncoder.flush`, and can be written on."""
        ...

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raises GraphError, which begins with `where`, if such columns can't be in such a file."""
        ...

    def compressed(self, compression: str, where: str) -> FileFormat:
        """The same with this compression. Raises OptionError, which begins with `where`."""
        ...

    def cuts(self, place: Place, path: str, size: int) -> list[int]:
        """Places, in their order, at which a file of so many bytes is cut into pieces that are read
        independently. []: it is not."""
        ...

    def of_type(self, of: Any) -> FileFormat:
        """The format for records of this type, or of this schema: called when the graph is built, since in a
        slot the type's module may not be there."""
        ...

    def decoder(self, schema: pa.Schema) -> FileDecoder:
        """A decoder of these columns, which are some of the type's."""
        ...

    def encoder(self, file: WritableFile, schema: pa.Schema) -> FileEncoder: ...

    def join(self, files: Iterable[bytes], file: WritableFile, schema: pa.Schema) -> None:
        """Write the rows of whole files, in their order, as one file. All were made by encoders of this
        format and of these columns."""
        ...
