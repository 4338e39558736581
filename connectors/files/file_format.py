"""FileFormat: how rows lie in a file. A description: immutable, picklable, opens nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

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

    def pieces(self, place: Place, path: str, at: int, end: int = 0) -> Iterator[Piece]:
        """The rows of a file from this place on (0: the beginning) up to this one (0: its end), in order.

        Raises BadRecordError naming file and record, DataLossError for a file that is cut off or damaged.
        """
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
