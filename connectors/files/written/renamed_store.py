"""RenamedStore: hidden files are files of another folder, and are shown by being renamed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO

from onceflow.connectors.files.written.folder_files import FolderFiles, folders_of
from onceflow.connectors.files.written.part import Part
from onceflow.runtime.errors import Fatal

_COPY, _WHOLE = ".copy", ".whole"


class RenamedStore:
    """An OutputStore of a file system with an atomic rename."""

    def __init__(self, files: FolderFiles, folder: str, hidden_folder: str) -> None:
        self._files = files
        self._folder = PurePosixPath(folder)
        self._hidden = PurePosixPath(hidden_folder)
        self._changed: set[str] = set()
        """Files that have been shown, and may not be durable under their names."""
        self._made: set[str] = set()
        """Folders that are there."""

    @property
    def keeps_prefixes(self) -> bool:
        return self._files.keeps_prefixes

    def describe(self, name: str) -> str:
        return str(self._folder / name)

    def create(self, name: str, hidden: str, attempt: int) -> RenamedFile:
        self._make_folder(str(self._hidden))
        file = self._files.create(str(self._hidden / hidden))
        return RenamedFile(self._files, file, str(self._hidden), Part(name, hidden, 0, attempt))

    def prove_creates(self) -> None:
        """A rename replaces nothing: see FolderFiles."""

    def notes(self) -> list[str]:
        return self._files.names(str(self._hidden))

    def read_note(self, hidden: str) -> bytes:
        return self._files.read(str(self._hidden / hidden))

    def create_note(self, hidden: str, content: bytes) -> None:
        self._make_folder(str(self._hidden))
        made = str(self._hidden / f"note-{uuid.uuid4().hex}")
        file = self._files.create(made)
        file.write(content)
        self._files.finish(file)
        try:
            self._files.rename(made, str(self._hidden / hidden))
        except FileExistsError:
            self._files.delete(made)
            raise
        self._files.sync(str(self._hidden))

    def delete_notes(self, hidden: Sequence[str]) -> None:
        for name in hidden:
            self._files.delete(str(self._hidden / name))

    def missing(self, parts: Sequence[Part]) -> Part | None:
        there = set(self.notes())
        return next((p for p in parts if p.hidden not in there and p.hidden + _WHOLE not in there), None)

    def show(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._show(str(self._hidden / part.hidden), part)

    def show_left(self, part: Part) -> None:
        """The order: a copy, durable; its name says that it is whole; the part is deleted; the copy is shown.

        Crash: what is whole is not copied again, and once neither is there it was shown. It is a copy because
        a writer that was frozen may wake up and write on: to a file that has no name any more.
        """
        hidden = str(self._hidden / part.hidden)
        whole = hidden + _WHOLE
        if not self._files.exists(whole) and self._files.exists(hidden):
            self._files.copy(hidden, hidden + _COPY, part.size)
            self._files.rename(hidden + _COPY, whole)
            self._files.sync(str(self._hidden))
        self._files.delete(hidden)
        self._show(whole, part)

    def mark(self, folder: str, name: str) -> None:
        path = str(self._folder / folder / name)
        self._make_folder(str(self._folder / folder))
        self._files.finish(self._files.create(path))
        self._changed.add(path)

    def shown(self) -> list[str]:
        below = self._files.all_files(str(self._folder))
        hidden = f"{self._hidden.relative_to(self._folder).parts[0]}/"
        return [name for name in below if not name.startswith(hidden)]

    def take_away(self, names: Sequence[str]) -> None:
        for name in names:
            self._files.delete(str(self._folder / name))
            self._changed.add(str(self._folder / name))

    def cut(self, name: str, size: int) -> bool:
        path = str(self._folder / name)
        if (self._files.size(path) or 0) <= size:
            return False
        self._make_folder(str(self._hidden))
        shorter = str(self._hidden / f"cut-{uuid.uuid4().hex}")
        self._files.copy(path, shorter, size)
        self._files.replace(shorter, path)
        self._changed.add(path)
        return True

    def make_names_durable(self) -> None:
        for folder in folders_of(sorted(self._changed)):
            self._files.sync(folder)
        self._changed.clear()

    def leftovers(self) -> Sequence[tuple[str, str]]:
        return ()  # they are hidden files, whose names say the attempt

    def abandon(self, leftovers: Sequence[tuple[str, str]]) -> None:
        assert not leftovers, "there are none"

    def close(self) -> None:
        """Nothing is open."""

    def _show(self, hidden: str, part: Part) -> None:
        path = str(self._folder / part.name)
        self._make_folder(path.rpartition("/")[0])
        try:
            self._files.rename(hidden, path)
        except FileNotFoundError:
            return  # it was shown before, by a commit that was cut off
        except FileExistsError:
            raise Fatal(
                f"{path} is there, and was not written by this job: files of the sink have names of their "
                "own, so somebody has copied its folder or its checkpoint folder; write to another folder"
            ) from None
        self._changed.add(path)

    def _make_folder(self, path: str) -> None:
        if path not in self._made:
            self._files.make_folder(path)
            self._made.add(path)


class RenamedFile:
    """A HiddenFile."""

    closed = False

    def __init__(self, files: FolderFiles, file: BinaryIO, folder: str, part: Part) -> None:
        self._files = files
        self._file = file
        self._folder = folder
        self._part = part
        self._size = 0
        self._lock = threading.Lock()
        """Around closing: an aborted checkpoint's `cut` may be made durable while the next one finishes."""
        self._is_finished = False
        self._is_given_up = False

    @property
    def size(self) -> int:
        return self._size

    def write(self, content: bytes) -> int:
        if self._is_given_up:  # an encoder that is let go of writes its end
            return len(content)
        self._file.write(content)
        self._size += memoryview(content).nbytes
        return len(content)

    def flush(self) -> None:
        """See HiddenFile."""

    def cut(self, checkpoint_id: int) -> Callable[[], Part]:
        size = self._files.flushed(self._file)

        def make_durable() -> Part:
            with self._lock:
                if not self._is_finished:
                    self._files.make_durable(self._file)
                    self._files.sync(self._folder)
            return self._as_of(size)

        return make_durable

    def finish(self) -> Part:
        with self._lock:
            if not self._is_finished:
                self._files.finish(self._file)
                self._files.sync(self._folder)
                self._is_finished = True
        return self._as_of(self._size)

    def close(self) -> None:
        with self._lock:
            if not self._is_finished:
                self._is_finished = self._is_given_up = True
                self._file.close()

    def _as_of(self, size: int) -> Part:
        part = self._part
        return Part(part.name, part.hidden, size, part.attempt)
