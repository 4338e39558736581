"""Files that a sink writer keeps in the checkpoint folder until they are committed."""

from __future__ import annotations

from typing import BinaryIO, Protocol


class StagedFiles(Protocol):
    """A writer's door to the checkpoint's own folder, on whatever file system it is.

    Names are made unique per attempt by the engine. A file that no durable checkpoint references is
    deleted by the engine, later.
    """

    def create(self, name: str) -> tuple[str, BinaryIO]:
        """A new file: its path relative to the checkpoint folder, and the file, open for writing.
        Closing makes it durable."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A file that a committable names. Raises CorruptCheckpointError with the path if it is gone."""
        ...
