"""LazyTables: the tables of a snapshot, built from frozen columns when they are first read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa


class LazyTables(Mapping[str, pa.Table]):
    """Made at the barrier by the task's thread, read by the thread that writes the snapshot.

    `build` gets nothing that still changes. It runs once; what it froze is let go of afterwards.
    """

    def __init__(self, name: str, build: Callable[[], pa.Table]) -> None:
        self._name = name
        self._build: Callable[[], pa.Table] | None = build
        self._table: pa.Table | None = None
        self._lock = threading.Lock()

    def __getitem__(self, name: str) -> pa.Table:
        if name != self._name:
            raise KeyError(name)
        with self._lock:
            if self._build is not None:
                self._table = self._build()
                self._build = None
        return self._table

    def __iter__(self) -> Iterator[str]:
        return iter((self._name,))

    def __len__(self) -> int:
        return 1
