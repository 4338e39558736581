"""FileFormat: how rows lie in a file. A description: immutable, picklable, opens nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, Protocol

import pyarrow as pa

from onceflow.connectors.files.place import Place


class Piece(NamedTuple):
    """Some rows of a file, and where its first one is: so many rows behind a place from which reading can
    begin."""

    at: int
    """The place: a byte, or the number of a row group."""
    row: int
    batch: pa.RecordBatch


class FileDecoder(Protocol):
    """Reads files of one format, for one reader."""

    def pieces(self, place: Place, path: str, at: int) -> Iterator[Piece]:
        """The rows of a file from this place on (0: the beginning), in order.

        Raises BadRecordError naming file and record, DataLossError for a file that is cut off or damaged.
        """
        ...


class FileEncoder(Protocol):
    """Writes one file. One thread at a time calls it."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        """Write what comes at the end. The file itself stays open."""
        ...


class FileFormat(Protocol):
    """The description of a format of files."""

    @property
    def name(self) -> str: ...

    @property
    def endings(self) -> tuple[str, ...]:
        """The endings of the names of its files; the first one is what is written."""
        ...

    def check(self, schema: pa.Schema, where: str) -> None:
        """Raises GraphError, which begins with `where`, if such columns can't be in such a file."""
        ...

    def of_type(self, of: Any) -> FileFormat:
        """The format for records of this type, or of this schema: called when the graph is built, since in a
        slot the type's module may not be there."""
        ...

    def decoder(self, schema: pa.Schema) -> FileDecoder:
        """A decoder of these columns, which are some of the type's."""
        ...

    def encoder(self, file: BinaryIO, schema: pa.Schema) -> FileEncoder: ...
