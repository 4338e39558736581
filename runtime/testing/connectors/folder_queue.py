"""FolderQueue: a queue in a folder, each message a file. A source that acknowledges.

A message is delivered to whoever looks, again and again, until it is acknowledged: then its file is gone.
The position of a split is what was delivered from it and may come again.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState


@dataclass(frozen=True)
class FolderQueue:
    """A Source. `splits`: how many readers can share the work. Bounded: it ends when the queue is empty."""

    path: str
    schema: pa.Schema
    splits: int = 4
    is_bounded: bool = False
    record_type: type | None = None

    def open_enumerator(self, job: str, clock: Clock) -> QueueEnumerator:
        return QueueEnumerator(self.splits)

    def open_reader(self, context: ReaderContext) -> QueueReader:
        return QueueReader(self)


class QueueEnumerator:
    """A SplitEnumerator of a number of splits that stays."""

    discovery_interval_ms = None

    def __init__(self, splits: int) -> None:
        self._splits = splits

    def initial_splits(self) -> Sequence[SplitState]:
        return [SplitState(f"queue-{number}", {"delivered": []}) for number in range(self._splits)]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        """Nothing can be missing: what is not there was acknowledged."""

    def close(self) -> None:
        pass


class QueueReader:
    """A SourceReader and an AcknowledgingReader."""

    def __init__(self, source: FolderQueue) -> None:
        self._source = source
        self._folder = Path(source.path)
        self._delivered: dict[str, list[str]] = {}
        """The messages of each split that were read and are not acknowledged, in the order of reading."""
        self._lock = threading.Lock()
        """Around what both threads use: the two below."""
        self._frozen: dict[int, set[str]] = {}
        """The messages that are part of each checkpoint."""
        self._acknowledged: set[str] = set()
        """Messages whose files are gone, and whose names may go."""
        self._finished: set[str] = set()

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._delivered[split.split_id] = list(split.position["delivered"])

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        for split in self._delivered:
            names = self._new_messages(split)[:records_max]
            is_finished = self._source.is_bounded and not names and split not in self._finished
            if names or is_finished:
                return self._read(split, names, is_finished)
        return None

    def _new_messages(self, split: str) -> list[str]:
        """What is there and was not read: a message that comes again is left out."""
        number, read = int(split.removeprefix("queue-")), set(self._delivered[split])
        there = sorted(path.name for path in self._folder.glob("*.json"))
        mine = (name for name in there if zlib.crc32(name.encode()) % self._source.splits == number)
        return [name for name in mine if name not in read]

    def _read(self, split: str, names: Sequence[str], is_finished: bool) -> Fetch:
        rows = [json.loads((self._folder / name).read_bytes()) for name in names]
        self._delivered[split] = [*self._delivered[split], *names]
        self._finished |= {split} if is_finished else set()
        batch = pa.RecordBatch.from_pylist(rows, self._source.schema)
        finished = frozenset({split}) if is_finished else frozenset()
        return Fetch(batch, np.zeros(len(rows), np.uint16), (split,), finished=finished)

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(split, {"delivered": names}) for split, names in self._delivered.items()]

    def on_barrier(self, checkpoint_id: int) -> None:
        with self._lock:
            gone, self._acknowledged = self._acknowledged, set()
            for split, names in self._delivered.items():
                self._delivered[split] = [name for name in names if name not in gone]
            self._frozen[checkpoint_id] = {name for names in self._delivered.values() for name in names}

    def on_completed(self, checkpoint_id: int) -> None:
        with self._lock:
            done = self._frozen[checkpoint_id]
            self._frozen = {n: names for n, names in self._frozen.items() if n > checkpoint_id}
        for name in done:
            (self._folder / name).unlink(missing_ok=True)
        # A file goes before its name does: else it would be read a second time in between.
        with self._lock:
            self._acknowledged |= done

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


def add_message(folder: Path, name: str, row: dict[str, Any]) -> None:
    """Put a message into the queue, whole at once."""
    whole = folder / f".{name}"
    whole.write_text(json.dumps(row))
    whole.rename(folder / f"{name}.json")
