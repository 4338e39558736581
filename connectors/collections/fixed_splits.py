"""FixedSplits: the enumerator of a source whose splits are known from the start and stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceflow.runtime.contracts import SplitState


class FixedSplits:
    """A SplitEnumerator. `check` looks at splits before a restore, and raises DataLossError."""

    discovery_interval_ms = None

    def __init__(
        self,
        splits: Sequence[SplitState],
        check: Callable[[Sequence[SplitState]], None] = lambda splits: None,
    ) -> None:
        self._splits = splits
        self._check = check

    def initial_splits(self) -> Sequence[SplitState]:
        return self._splits

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        self._check(splits)

    def close(self) -> None:
        """Nothing is open."""
