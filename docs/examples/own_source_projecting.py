"""A source that leaves out columns which nobody reads, and the bare suite of sources, for any test runner."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    Fetch,
    Noted,
    ProjectableSource,
    ReaderContext,
    Source,
    SourceReader,
    SplitEnumerator,
    SplitState,
)
from onceflow.runtime.testing.conformance import SOURCE_CHECKS


@dataclass(frozen=True)
class Numbers:
    end: int
    columns: tuple[str, ...] = ("n", "square")
    record_type: type | None = None
    is_bounded: bool = True

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.int64()) for name in self.columns])

    def open_enumerator(self, job: str, clock: Clock) -> SplitEnumerator:
        return TwoSplits()

    def open_reader(self, context: ReaderContext) -> SourceReader:
        return NumbersReader(self)

    def project(self, columns: frozenset[str]) -> Source:
        """A ProjectableSource: what nobody reads is not made."""
        return Numbers(
            self.end, tuple(name for name in self.columns if name in columns)
        )

    @property
    def plan_note(self) -> str:
        """Noted: a word in the plan."""
        return "each number once"


class TwoSplits:
    discovery_interval_ms = None  # no new splits while it runs

    def initial_splits(self) -> Sequence[SplitState]:
        return [SplitState("even", {"next": 0}), SplitState("odd", {"next": 1})]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        """Numbers are never gone. Where they may be, raise DataLossError."""

    def close(self) -> None:
        pass


class NumbersReader:
    def __init__(self, source: Numbers) -> None:
        self._source = source
        self._next: dict[str, int] = {}
        self._finished: set[str] = set()

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._next.update(
            {split.split_id: int(split.position["next"]) for split in splits}
        )

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        for split in sorted(self._next.keys() - self._finished):
            n = np.arange(self._next[split], self._source.end, 2)[:records_max]
            self._next[split] += 2 * len(n)
            if self._next[split] >= self._source.end:
                self._finished.add(split)
            made = {"n": n, "square": n * n}
            batch = pa.record_batch(
                [made[name] for name in self._source.columns],
                schema=self._source.schema,
            )
            finished = frozenset({split} & self._finished)
            return Fetch(
                batch, np.zeros(len(n), np.uint16), (split,), finished=finished
            )
        return None

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(split, {"next": n}) for split, n in self._next.items()]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


numbers: Source = Numbers(20)
assert isinstance(numbers, ProjectableSource)
assert isinstance(numbers, Noted)
for check in SOURCE_CHECKS:
    check(numbers)
