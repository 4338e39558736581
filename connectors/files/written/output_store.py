"""OutputStore and HiddenFile: what a sink needs of a file system to show files whole, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from onceflow.connectors.files.written.part import Part


class HiddenFile(Protocol):
    """A file that nobody sees. The task's thread writes; `finish` and what `cut` returns run on another."""

    closed: bool

    @property
    def size(self) -> int:
        """How many bytes were written."""
        ...

    def write(self, content: bytes) -> int: ...

    def flush(self) -> None:
        """For those who write to it as to a file: nothing is durable by that."""
        ...

    def cut(self, checkpoint_id: int) -> Callable[[], Part]:
        """Freeze what was written so far, without waiting for anything. The function that is returned makes
        it durable, while writing goes on, and raises OSError."""
        ...

    def finish(self) -> Part:
        """Make all of it durable and close it. Raises OSError."""
        ...

    def close(self) -> None:
        """Let go of it; may be called again. What is not named by a checkpoint is deleted by a later
        attempt."""
        ...


class OutputStore(Protocol):
    """The folder of one sink of one job, on one file system: any number of writers, and one committer.

    Hidden names are those of a folder that nobody reads.
    """

    @property
    def keeps_prefixes(self) -> bool:
        """Whether `HiddenFile.cut` works: whether a file can be durable up to a byte and be written on."""
        ...

    def describe(self, name: str) -> str:
        """The path of a file that is or will be seen, for messages."""
        ...

    # --- For writers ---

    def create(self, name: str, hidden: str, attempt: int) -> HiddenFile:
        """A new file with this hidden name, which will be seen as `name`."""
        ...

    # --- For the committer ---

    def prove_creates(self) -> None:
        """Once for each attempt: raises Fatal if `create_note` does not keep its word on this file system."""
        ...

    def notes(self) -> list[str]:
        """The names of all hidden files, those of the ledger among them."""
        ...

    def read_note(self, hidden: str) -> bytes: ...

    def create_note(self, hidden: str, content: bytes) -> None:
        """A new hidden file: durable, whole or not at all, for one caller only. Raises FileExistsError."""
        ...

    def delete_notes(self, hidden: Sequence[str]) -> None:
        """Delete hidden files; one that is not there is no error."""
        ...

    def missing(self, parts: Sequence[Part]) -> Part | None:
        """A part that is neither hidden here nor half shown; None: all are there. Before any is shown."""
        ...

    def show(self, parts: Sequence[Part]) -> None:
        """Let these whole parts be seen under their names, in any order. To one that was shown before nothing
        happens, also when it was taken away since. Nothing is at work any more when it returns or raises:
        Fatal if somebody else's file has the name, OSError."""
        ...

    def show_left(self, part: Part) -> None:
        """The same for one part, and only its first `size` bytes: an earlier attempt may still be writing."""
        ...

    def mark(self, folder: str, name: str) -> None:
        """An empty file with this name in this folder, for all to see; it may be there."""
        ...

    def shown(self) -> list[str]:
        """The names of all files that are to be seen in the folder and below it, this sink's and others'."""
        ...

    def take_away(self, names: Sequence[str]) -> None:
        """Files that are seen are no more; one that is not there is no error."""
        ...

    def cut(self, name: str, size: int) -> bool:
        """A file that is seen has its first `size` bytes only, in one step. False: it has no more, or is not
        there."""
        ...

    def make_names_durable(self) -> None:
        """What was shown, marked, taken away and cut outlives a power cut from here on."""
        ...

    def leftovers(self) -> Sequence[tuple[str, str]]:
        """What earlier attempts may have left beside hidden files; asked before any slot of this attempt is
        started. See `abandon`."""
        ...

    def abandon(self, leftovers: Sequence[tuple[str, str]]) -> None:
        """Give back the room that these take; one that is not there is no error."""
        ...

    def close(self) -> None: ...
