"""Joins: makes one file of several that wait, so that it is shown once, whatever is killed.

    joined-<checkpoint>-<number>   which hidden file is the joined one; of several attempts' the first one's

The order, and what a crash leaves in each gap:

1. The files are written as one to a hidden file, which is durable then. Crash: it is deleted, and made anew.
2. A note says which hidden file it is. It is created, so whoever joins the same group, as an attempt that was
   frozen and wakes up, takes this one. Crash: the next attempt goes on from here.
3. When all groups have one, the ledger is asked whether the checkpoint is still to be committed. If somebody
   has committed it, the notes are of no use, since those before them may be deleted already.

Then it is shown as any part is. The files that it was made of are deleted once the ledger has the commit.
"""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.files.file_format import FileFormat
from onceflow.connectors.files.written.compaction import CompactPolicy, Group, form_of
from onceflow.connectors.files.written.output_store import HiddenFile, OutputStore
from onceflow.connectors.files.written.part import Part, hidden_name
from onceflow.runtime.errors import DataLossError, Fatal

JOINED = "joined-"


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """What a sink says of its small files."""

    policy: CompactPolicy | None
    """None: what waits since the program had one is shown as it is."""
    form: FileFormat
    schema: pa.Schema
    """The columns of the files."""

    @property
    def form_name(self) -> str:
        return form_of(self.form, self.schema)


class Joins:
    """The joins of one attempt. One thread calls them, in the driver."""

    def __init__(
        self, store: OutputStore, attempt: int, small_files: SmallFiles, check_current: Callable[[], object]
    ) -> None:
        """`check_current` raises Fenced if somebody has committed since this commit began."""
        self._store = store
        self._attempt = attempt
        self._small_files = small_files
        self._check_current = check_current
        self._writer = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()

    def make(self, checkpoint_id: int, groups: Sequence[Group], notes: Sequence[str]) -> list[Part]:
        """The hidden files to show for these groups of a commit. Raises Fenced, DataLossError, Fatal,
        OSError."""
        if not groups:
            return []
        names = [f"{JOINED}{checkpoint_id:010d}-{number:05d}" for number in range(len(groups))]
        try:
            made = [self._made(name, group, notes) for name, group in zip(names, groups, strict=True)]
            self._check_current()
            return [part or self._read(name) for name, part in zip(names, made, strict=True)]
        except FileNotFoundError as error:
            self._check_current()
            where = self._store.describe(groups[0].target)
            raise DataLossError(
                f"a file that waits to be joined into {where}, or another one, is gone: {error}; "
                "put it back, and leave what is below .onceflow/ alone while the job may come back"
            ) from error

    def _made(self, note: str, group: Group, notes: Sequence[str]) -> Part | None:
        """The joined file of this group, if the note says it is ours; None: ask the note."""
        if note in notes:
            return None
        part = self._join(group)
        try:
            self._store.create_note(note, json.dumps(part.as_json()).encode())
        except FileExistsError:
            return None
        return part

    def _read(self, note: str) -> Part:
        return Part.from_json(json.loads(self._store.read_note(note)))

    def _join(self, group: Group) -> Part:
        hidden = hidden_name(self._attempt, 0, self._writer, next(self._numbers))
        file = self._store.create(group.target, hidden, self._attempt)
        try:
            self._write(group, file)
            return file.finish()
        except BaseException:
            file.close()
            raise

    def _write(self, group: Group, file: HiddenFile) -> None:
        contents: Iterator[bytes] = (self._store.read_note(name) for name in group.of)
        if len(group.of) == 1:
            file.write(next(contents))
            return
        known = self._small_files
        if any(f"/{known.form_name}/" not in name for name in group.of):
            raise Fatal(
                f"{self._store.describe(group.target)} was being joined when the job was killed, and the "
                "format or the columns of the sink are other ones now: start the job once as it was"
            )
        known.form.join(contents, file, known.schema)
