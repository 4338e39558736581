"""FolderTable: a table in a folder, with one commit file for each checkpoint. A sink with a committer.

    schema.arrow             the columns
    parts/<name>.arrow       rows of one writer; nobody sees them until a commit names them
    commits/0000000001.json  a commit: whose it is, of which checkpoint, and the parts of all writers

A commit is visible because its file is there. The file is created in one step and never replaced, so of two
that want the same number one wins; the ledger is in it, so output and ledger can't disagree.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Committable, CommitterContext, PreCommit, SinkContext
from onceflow.runtime.errors import Fatal, Indeterminate
from onceflow.runtime.records import Records

ROW_KIND = pa.field("row_kind", pa.int8(), nullable=False)


@dataclass(frozen=True)
class FolderTable:
    """A Sink, a CommittingSink and a ChangelogSink. `path`: an absolute path of a local disk.

    `takes_kinds`: the table has one more column, `row_kind`, with what each row does.
    """

    path: str
    takes_kinds: bool = False

    def check(self, schema: pa.Schema, uid: str) -> None:
        """Arrow files hold rows of any schema."""

    def open_writer(self, context: SinkContext) -> FolderTableWriter:
        path = Path(self.path)
        (path / "parts").mkdir(parents=True, exist_ok=True)
        (path / "commits").mkdir(exist_ok=True)
        if self.takes_kinds:
            context = replace(context, schema=context.schema.append(ROW_KIND))
        create(path / "schema.arrow", context.schema.serialize().to_pybytes())
        found = self.schema()
        if not found.equals(context.schema):
            raise Fatal(
                f"the table {self.path} has the columns {_describe(found)}, and sink {context.uid!r} writes "
                f"{_describe(context.schema)}: write to another table, or select what this one has"
            )
        return FolderTableWriter(path, context, self.takes_kinds)

    def open_committer(self, context: CommitterContext) -> FolderTableCommitter:
        return FolderTableCommitter(Path(self.path) / "commits", f"{context.lineage}.{context.uid}")

    def schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer((Path(self.path) / "schema.arrow").read_bytes()))

    def read(self) -> pa.Table:
        """All rows that are committed, in the order of the commits."""
        parts = [
            Path(self.path) / "parts" / name
            for commit in _commits(Path(self.path) / "commits")
            for name in commit["parts"]
        ]
        return pa.concat_tables([self.schema().empty_table(), *map(_read_part, parts)])


class FolderTableWriter:
    """A SinkWriter: its part of a checkpoint is one file."""

    def __init__(self, path: Path, context: SinkContext, takes_kinds: bool) -> None:
        self._path = path
        self._takes_kinds = takes_kinds
        self._context = context
        self._batches: list[pa.RecordBatch] = []
        """Rows that are in no committed checkpoint, also those of aborted ones."""
        self._frozen: dict[int, int] = {}
        """How many of these batches belong to each checkpoint."""

    def recover(self, committables: Sequence[Committable]) -> None:
        assert not committables, "the committer has committed them before a slot was started"

    def write(self, records: Records) -> None:
        batch = records.batch
        if self._takes_kinds:
            kind = np.zeros(len(records), np.int8) if records.kind is None else records.kind
            batch = batch.append_column(ROW_KIND, pa.array(kind))
        self._batches.append(batch)

    def pre_commit(self, checkpoint_id: int) -> PreCommit:
        self._frozen[checkpoint_id] = len(self._batches)
        return _Part(self._path, self._context, checkpoint_id, list(self._batches))

    def commit(self, checkpoint_id: int) -> None:
        """The committer has made them visible."""
        count = self._frozen.get(checkpoint_id, 0)
        del self._batches[:count]
        self._frozen = {n: kept - count for n, kept in self._frozen.items() if n > checkpoint_id}

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class _Part:
    """A PreCommit."""

    path: Path
    context: SinkContext
    checkpoint_id: int
    batches: Sequence[pa.RecordBatch]

    def stage(self) -> Committable:
        c = self.context
        names = []
        if self.batches:
            # No two attempts and no two subtasks ever write the same name.
            names = [f"{c.lineage}.{c.uid}.{self.checkpoint_id}.{c.subtask}.{c.attempt}.arrow"]
            with open(self.path / "parts" / names[0], "wb") as file:
                with pa.ipc.new_stream(file, c.schema) as stream:
                    for batch in self.batches:
                        stream.write_batch(batch)
                file.flush()
                os.fsync(file.fileno())
        return Committable(c.uid, str(c.subtask), self.checkpoint_id, {"parts": names})


class FolderTableCommitter:
    """A SinkCommitter."""

    def __init__(self, commits: Path, ledger: str) -> None:
        self._commits = commits
        self._ledger = ledger
        self._next = 1
        """The number of the commit after the last one that was there when somebody asked."""

    def last_committed(self) -> int | None:
        found = _commits(self._commits)
        self._next = len(found) + 1
        return max((c["checkpoint_id"] for c in found if c["ledger"] == self._ledger), default=None)

    def commit(self, checkpoint_id: int, committables: Sequence[Committable]) -> None:
        parts = [name for c in committables for name in c.payload["parts"]]
        if not parts:
            return  # nothing to show: the ledger need not know of it
        commit = {"ledger": self._ledger, "checkpoint_id": checkpoint_id, "parts": parts}
        if not create(self._commits / f"{self._next:010d}.json", json.dumps(commit).encode()):
            raise Indeterminate(f"commit {self._next} of {self._commits.parent} is there: is it ours?")

    def close(self) -> None:
        pass


def create(path: Path, content: bytes) -> bool:
    """Make a file with this content, whole or not at all. False: there is one already."""
    whole = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with open(whole, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(whole, path)
    except FileExistsError:
        return False
    finally:
        whole.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return True


def _commits(folder: Path) -> list[dict[str, Any]]:
    """The commits in order; their numbers have no gaps, since each is one more than all that were there."""
    if not folder.exists():
        return []
    return [json.loads(path.read_bytes()) for path in sorted(folder.glob("[0-9]*.json"))]


def _read_part(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
