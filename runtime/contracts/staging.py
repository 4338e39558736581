"""Files that a sink writer keeps in the checkpoint folder until they are committed."""

from __future__ import annotations

from typing import BinaryIO, Protocol, runtime_checkable

from onceflow.runtime.errors import CorruptCheckpointError


class PromisedFiles(Protocol):
    """The files that committables name, for whoever commits them."""

    def open(self, path: str) -> BinaryIO:
        """Open a file that a committable names, for reading. Raises CorruptCheckpointError with the path if
        it is gone."""
        ...


class StagedFiles(PromisedFiles, Protocol):
    """A writer's door to the checkpoint's own folder, on whatever file system it is.

    Names are made unique per attempt by the engine. A file that no durable checkpoint references is
    deleted by the engine, later.
    """

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """A new file: its path relative to the checkpoint folder, and the file, open for writing.
        Closing makes it durable."""
        ...


@runtime_checkable
class CopiedFiles(Protocol):
    """PromisedFiles that have small files twice."""

    def open_copy(self, path: str) -> BinaryIO | None:
        """The second copy of a file, which may be damaged like the first; None: there is none."""
        ...

    def healed(self, problem: str) -> None:
        """Called when the copy was read instead; `problem` says what is wrong with the file."""
        ...


class NoFiles:
    """PromisedFiles of a sink whose writers stage none."""

    def open(self, path: str) -> BinaryIO:
        """Raises CorruptCheckpointError: no writer has promised a file."""
        raise CorruptCheckpointError(f"{path} can't be opened: there is no checkpoint folder here")
