"""Wrong versions of what `Retention` does, for `mutants.py`."""

from __future__ import annotations

from collections.abc import Set

from onceflow.runtime.checkpoint.copies import delete_with_copies
from onceflow.runtime.checkpoint.retention import Retention


def drop_all_but_named(self: Retention, checkpoint_id: int) -> None:
    """Files of kept checkpoints go, others stay."""
    delete_with_copies(self._store, [path for _, _, names in self._kept for path in names])


def discard_unasked(self: Retention, paths: Set[str]) -> None:
    """Files of an aborted checkpoint go at once, also those that a completed one names."""
    delete_with_copies(self._store, sorted(paths))


def discard_what_none_names(self: Retention, paths: Set[str]) -> None:
    """Files go at once if no completed checkpoint names them; the one that is under way is not asked."""
    delete_with_copies(self._store, sorted(paths - frozenset().union(*(names for _, _, names in self._kept))))
