"""OutputFolder: files that become visible by being renamed, and a ledger of which checkpoints have.

    totals-0000000012-0001-3f2a9c01.parquet   a file that is whole, and committed
    .onceflow/<lineage>.<uid>/                what nobody reads: files that are written, and the ledger

The names are made of uid, checkpoint, subtask and lineage, so a repeated commit renames to the same name.
The order of a commit, and what a crash leaves in each gap:

1. All files of the checkpoint are found. One that is not: it was lost, or the slot wrote to a folder of
another
   machine. Nothing has happened, and the job ends with a sentence.
2. The ledger says that the checkpoint is being committed. Crash: the next attempt comes here again; from now
on
   a file that is not found has been renamed, and perhaps taken away by whoever reads the folder.
3. Each file is renamed. Crash: as after 2.
4. The ledger says that the checkpoint is committed. Crash: it is asked before each commit, and says so.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import BinaryIO, cast

from onceflow.connectors.files.place import Place
from onceflow.runtime.errors import DataLossError

HIDDEN = ".onceflow"
_DONE, _BEGUN = "committed-", "committing-"


class OutputFolder:
    """The folder of one sink of one job. Any number of writers and one committer use it."""

    def __init__(self, place: Place, lineage: str, uid: str) -> None:
        self._place = place
        self._lineage = lineage
        self._uid = uid
        self._folder = PurePosixPath(place.path)
        self._hidden = self._folder / HIDDEN / f"{lineage}.{uid}"

    # --- For writers ---

    def visible_name(self, checkpoint_id: int, subtask: int, ending: str) -> str:
        """The name under which a writer's rows of a checkpoint are seen."""
        return f"{self._uid}-{checkpoint_id:010d}-{subtask:04d}-{self._lineage[:8]}{ending}"

    def create(self, attempt: int, subtask: int, number: int) -> tuple[str, BinaryIO]:
        """A new file that nobody sees: its name in the hidden folder, and the file. `number`: the writer's
        next. No two files have one name, even of one subtask and attempt: Spark may run a task twice at
        once."""
        hidden = f"{attempt:06d}.{subtask:04d}.{number:08d}.{uuid.uuid4().hex[:8]}"
        self._make_folder()
        path = str(self._hidden / hidden)
        local = self._place.is_local
        file = open(path, "wb") if local else self._place.fs.open(path, "wb")  # noqa: SIM115 - see `finish`
        return hidden, cast(BinaryIO, file)

    def finish(self, file: BinaryIO) -> None:
        """Make a file durable."""
        if self._place.is_local:
            file.flush()
            os.fsync(file.fileno())
        file.close()
        self._sync(self._hidden)

    # --- For the committer ---

    def last_committed(self) -> int | None:
        """The latest checkpoint that is committed, by the ledger; None: none."""
        return max(
            (int(name.removeprefix(_DONE)) for name in self._listed() if name.startswith(_DONE)), default=None
        )

    def commit(self, checkpoint_id: int, files: Sequence[tuple[str, str]]) -> None:
        """Make these visible: (name in the hidden folder, name that is seen). May be called again for the
        same ones. Raises DataLossError."""
        there = set(self._listed())
        begun = f"{_BEGUN}{checkpoint_id:010d}"
        if begun not in there:
            if missing := [hidden for hidden, _ in files if hidden not in there]:
                raise DataLossError(
                    f"{self._hidden / missing[0]} is not there, which a slot wrote for checkpoint "
                    f"{checkpoint_id}: if slots run on other machines, they have to see the same folder as "
                    "the driver"
                )
            self._mark(begun)
        for hidden, name in files:
            self._rename(self._hidden / hidden, self._folder / name)
        self._sync(self._folder)
        self._rename(self._hidden / begun, self._hidden / f"{_DONE}{checkpoint_id:010d}")
        self._sync(self._hidden)

    def sweep(self, attempt: int, committed_id: int) -> None:
        """Delete what earlier attempts have left, and what the ledger said before this checkpoint."""
        for name in self._listed():
            first, _, rest = name.partition(".")
            is_stale = bool(rest) and first.isdecimal() and int(first) < attempt
            is_told = name.startswith(_DONE) and int(name.removeprefix(_DONE)) < committed_id
            if is_stale or is_told:
                with contextlib.suppress(FileNotFoundError):
                    self._place.fs.rm_file(str(self._hidden / name))

    # --- Both file systems ---

    def _make_folder(self) -> None:
        if not self._place.fs.isdir(str(self._hidden)):
            self._place.fs.makedirs(str(self._hidden), exist_ok=True)
            for folder in (self._hidden.parent, self._folder, self._folder.parent):
                self._sync(folder)

    def _listed(self) -> list[str]:
        self._place.fs.invalidate_cache()
        try:
            return [PurePosixPath(path).name for path in self._place.fs.ls(str(self._hidden), detail=False)]
        except FileNotFoundError:
            return []

    def _mark(self, name: str) -> None:
        path = str(self._hidden / name)
        if not self._place.is_local:
            self._place.fs.pipe_file(path, b"")
            return
        with open(path, "wb") as file:
            os.fsync(file.fileno())
        self._sync(self._hidden)

    def _rename(self, old: PurePosixPath, new: PurePosixPath) -> None:
        with contextlib.suppress(FileNotFoundError):  # it was renamed before, by a commit that was cut off
            if self._place.is_local:
                os.replace(old, new)
            else:
                self._place.fs.mv(str(old), str(new))

    def _sync(self, folder: PurePosixPath) -> None:
        """Make durable which names a folder has."""
        if not self._place.is_local:
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
