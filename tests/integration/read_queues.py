"""Readers of queues, driven by hand: polled until they have what is waited for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from onceflow.runtime.clock import Clock, SystemClock
from onceflow.runtime.contracts import ReaderContext, Source, SplitState

WAIT_S = 240


def open_reader(
    source: Source, splits: Sequence[SplitState] = (), clock: Clock | None = None, **context: Any
) -> Any:
    reader = source.open_reader(ReaderContext("job", "uid", 0, 1, clock or SystemClock(), **context))
    reader.add_splits(splits or source.open_enumerator("job", SystemClock()).initial_splits())
    return reader


def read(reader: Any, until: Callable[[list[Any]], bool], records_max: int = 1_000) -> list[Any]:
    seen: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while not until(seen):
        assert time.monotonic() < deadline, f"{len(seen)} rows within {WAIT_S} s"
        if (fetch := reader.poll(0, records_max)) is None:
            threading.Event().wait(0.005)
            continue
        seen += fetch.records.to_pylist()
    return seen


def numbers(rows: Sequence[Any]) -> list[int]:
    return sorted(row["n"] for row in rows)


def barrier(reader: Any, number: int) -> list[SplitState]:
    reader.on_barrier(number)
    return [SplitState(s.split_id, json.loads(json.dumps(s.position))) for s in reader.snapshot()]
