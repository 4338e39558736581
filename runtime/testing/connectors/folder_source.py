"""FolderSource: a growing folder of numbered files, each of them a split. A source that prunes.

    0000000001.jsonl, 0000000002.jsonl, ...   a JSON object a line; whoever adds one renames a whole file

With kinds, an object's "kind" says what it does: "insert", "update_before", "update_after" or "delete".

A file that was read is finished for ever. What is remembered of all finished files is one number and those
beyond it, however many there were.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, Json, ReaderContext, SplitState
from onceflow.runtime.errors import DataLossError
from onceflow.runtime.records import RowKind


@dataclass(frozen=True)
class FolderSource:
    """A Source, a PruningSource, a ChangelogSource and a PausableSource.

    Bounded: it ends with the files that are there at the first start.
    """

    path: str
    schema: pa.Schema
    is_bounded: bool = False
    has_kinds: bool = False
    can_pause: bool = True
    look_every_ms: int = 50
    record_type: type | None = None

    def open_enumerator(self, job: str, clock: Clock) -> FolderEnumerator:
        return FolderEnumerator(self)

    def open_reader(self, context: ReaderContext) -> FolderReader:
        return FolderReader(self)

    def add_finished(self, finished: Json, splits: Sequence[SplitState]) -> Json:
        """{"below": 17, "also": [19, 22]}: files 1 to 16, 19 and 22 were read to their end."""
        below, also = _finished(finished)
        also |= {number_of(split.split_id) for split in splits}
        while below in also:
            below += 1
        return {"below": below, "also": sorted(n for n in also if n > below)}


class FolderEnumerator:
    """A SplitEnumerator, and a PruningEnumerator."""

    def __init__(self, source: FolderSource) -> None:
        self._folder = Path(source.path)
        self.discovery_interval_ms = None if source.is_bounded else source.look_every_ms

    def initial_splits(self) -> Sequence[SplitState]:
        return self.discover_unfinished(frozenset(), None)

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return self.discover_unfinished(known, None)

    def discover_unfinished(self, known: frozenset[str], finished: Json) -> Sequence[SplitState]:
        below, also = _finished(finished)
        names = sorted(path.name for path in self._folder.glob("[0-9]*.jsonl"))
        new = (n for n in names if n not in known and number_of(n) >= below and number_of(n) not in also)
        return [SplitState(name, {"next_byte": 0}) for name in new]

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            path, next_byte = self._folder / split.split_id, split.position["next_byte"]
            size = path.stat().st_size if path.exists() else -1
            if size < next_byte:
                raise DataLossError(
                    f"{path} is to be read on from byte {next_byte}, and has {size}: put it back"
                )

    def close(self) -> None:
        pass


class FolderReader:
    """A SourceReader, a ForgettingReader and a PausableReader. Reads one file after another."""

    def __init__(self, source: FolderSource) -> None:
        self._source = source
        self._next_byte: dict[str, int] = {}
        self._open: list[str] = []
        """Splits that are not read to their end, in the order in which they are read."""
        self._paused: set[str] = set()

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._next_byte[split.split_id] = split.position["next_byte"]
            self._open.append(split.split_id)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """A file is read in memory, so there is nothing to wait for."""
        split = next((split for split in self._open if split not in self._paused), None)
        if split is None:
            return None
        with open(Path(self._source.path) / split, "rb") as file:
            file.seek(self._next_byte[split])
            lines = [line for _, line in zip(range(records_max), file, strict=False)]
            self._next_byte[split] += sum(map(len, lines))
            is_finished = not file.read(1)
        if is_finished:
            self._open.remove(split)
        rows = [json.loads(line) for line in lines]
        kind = None
        if self._source.has_kinds:
            kind = np.array([RowKind[row.pop("kind").upper()] for row in rows], np.int8)
        batch = pa.RecordBatch.from_pylist(rows, self._source.schema)
        finished = frozenset({split}) if is_finished else frozenset()
        return Fetch(batch, np.zeros(len(rows), np.uint16), (split,), kind=kind, finished=finished)

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(split, {"next_byte": at}) for split, at in self._next_byte.items()]

    def forget_splits(self, split_ids: Collection[str]) -> None:
        for split_id in split_ids:
            del self._next_byte[split_id]

    def pause_splits(self, split_ids: Collection[str]) -> None:
        self._paused.update(split_ids)

    def resume_splits(self, split_ids: Collection[str]) -> None:
        self._paused.difference_update(split_ids)

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


def number_of(name: str) -> int:
    return int(name.removesuffix(".jsonl"))


def add_file(folder: Path, number: int, rows: Sequence[dict[str, Any]]) -> None:
    """Put the next file there, whole at once."""
    whole = folder / f".{number}"
    whole.write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole.rename(folder / f"{number:010d}.jsonl")


def _finished(finished: Json) -> tuple[int, set[int]]:
    return (1, set()) if finished is None else (finished["below"], set(finished["also"]))
