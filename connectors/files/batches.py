"""FilePlanner: files in batches; each batch names its files, or pieces of them, so it can be read again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from onceflow.connectors.files.enumerator import SETTLED_AFTER_MS, FileEnumerator
from onceflow.connectors.files.file_split import FileSplit
from onceflow.connectors.files.finished_files import FinishedFiles
from onceflow.connectors.files.place import Place
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, SplitState

TASK_BYTES = 32 << 20
"""Splits that have no more than this together are read by one task."""
_LOOK_MS = 1

_Sized = tuple[FileSplit, int]
"""A split, and about how many bytes it has."""


class FilePlanner:
    """A BatchPlanner. A place has the files that are in this batch or an earlier one (`read`, see
    FinishedFiles), the pieces of the last of them that are left for the next batch (`left`), and what is in
    the batch that ends there (`batch`).

    Older files come first. A batch has at least one split, whatever the limit.
    """

    def __init__(
        self, place: Place, clock: Clock, cuts: Callable[[str, int], list[int]], limit: BatchLimit
    ) -> None:
        self._place = place
        self._limit = limit
        self._enumerator = FileEnumerator(place, _LOOK_MS, clock, cuts)
        self._held: frozenset[str] | None = None
        """The files that were there when it was held; None: it is not."""

    def first(self) -> Json:
        return {"read": None, "left": [], "batch": []}

    def next(self, place: Json) -> Json:
        waiting = [_sized(each) for each in place["left"]] + self._new(place["read"])
        batch = self._taken(waiting)
        if not batch:
            return place
        behind = waiting[len(batch) :]
        last = batch[-1][0].path
        left = [each for each in behind if each[0].path == last]
        begun = [(split.path, split.file_version) for split, _ in batch if not split.is_changed]
        return {
            "read": FinishedFiles(place["read"]).with_files(begun),
            "left": [_json(each) for each in left],
            "batch": [_json(each) for each in batch],
        }

    def hold(self) -> None:
        """Files that were written just now are waited for, for as long as it takes to see whether somebody
        still writes them."""
        there = self._place.files()
        found = {split.path for split, _ in self._new(None)}
        if found < there.keys():
            time.sleep(SETTLED_AFTER_MS / 1000)
            found = {split.path for split, _ in self._new(None)}
        self._held = frozenset(found & there.keys())

    def tasks(self, begin: Json, end: Json) -> Sequence[Sequence[SplitState]]:
        tasks: list[list[SplitState]] = []
        room = 0
        for split, size in map(_sized, [] if begin == end else end["batch"]):
            if not tasks or size > room:
                tasks.append([])
                room = TASK_BYTES
            tasks[-1].append(split.state())
            room -= size
        return tasks

    def done(self, place: Json) -> None:
        """Files stay where they are."""

    def close(self) -> None:
        self._enumerator.close()

    def _new(self, read: Json) -> list[_Sized]:
        """The splits of files that are in no batch yet, older files first."""
        states = self._enumerator.discover_unfinished(frozenset(), read)
        splits = [FileSplit.from_state(state) for state in states]
        pieces: dict[str, int] = {}
        for split in splits:
            pieces[split.path] = pieces.get(split.path, 0) + 1
        held = self._held
        return [
            (split, split.size // pieces[split.path])
            for split in sorted(splits, key=_age)
            if held is None or split.path in held
        ]

    def _taken(self, waiting: Sequence[_Sized]) -> Sequence[_Sized]:
        splits_max, bytes_max = self._limit.splits, self._limit.bytes
        count = size = 0
        files: set[str] = set()
        for split, split_bytes in waiting:
            files.add(split.path)
            size += split_bytes
            is_over = (splits_max is not None and len(files) > splits_max) or (
                bytes_max is not None and size > bytes_max
            )
            if is_over and count:
                break
            count += 1
        return waiting[:count]


def _age(split: FileSplit) -> tuple[str, str, int]:
    """The order in which files are read: by the time at which they were written where that is their version,
    by their names elsewhere."""
    try:
        written = f"{float(split.version):030.6f}"
    except ValueError:
        written = ""
    return written, split.path, split.begin


def _json(sized: _Sized) -> Json:
    split, size = sized
    return {"split": asdict(split), "bytes": size}


def _sized(found: Mapping[str, Any]) -> _Sized:
    return FileSplit(**found["split"]), int(found["bytes"])
