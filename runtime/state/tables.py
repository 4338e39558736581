"""Where operators get their tables from, and slots their backend: what keeps the state is chosen here."""

from __future__ import annotations

from importlib.util import find_spec

from onceflow.runtime.errors import Fatal
from onceflow.runtime.state.grouped_table import GroupedTable
from onceflow.runtime.state.heap.heap_groups import HeapGroups
from onceflow.runtime.state.heap.heap_limit import LimitedHeap
from onceflow.runtime.state.heap.heap_panes import HeapPanes
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.seen_rows import SeenRows
from onceflow.runtime.state.overflow import MEMORY_BYTES, StateBackend, StateOptions, Unlimited
from onceflow.runtime.state.table import IdentifiedTable, IncrementalTable, Layout, PaneTable, TrackedTable

__all__ = [
    "Layout",
    "SeenRows",
    "grouped_table",
    "has_rocksdb",
    "identified_table",
    "keyed_table",
    "pane_table",
    "state_backend",
    "tracked_table",
]


def keyed_table(layout: Layout) -> IncrementalTable:
    return HeapTable(layout)


def identified_table(layout: Layout) -> IdentifiedTable:
    return HeapTable(layout)


def pane_table(layout: Layout) -> PaneTable:
    return HeapPanes(layout)


def tracked_table(layout: Layout) -> TrackedTable:
    return HeapTable(layout, tracks_changes=True)


def grouped_table(layout: Layout) -> GroupedTable:
    return HeapGroups(layout)


def state_backend(options: StateOptions) -> StateBackend:
    """The backend of one slot. Raises Fatal if it is not installed here."""
    if options.backend == "heap":
        limit, snapshots = options.memory_bytes, options.snapshots
        return Unlimited(snapshots) if limit is None else LimitedHeap(limit, snapshots)
    if not has_rocksdb():
        raise Fatal(
            "--state-backend rocksdb: rocksdict is not installed where the slots run: install "
            "onceflow[rocksdb]"
        )
    # Here and not above: it is an extra.
    from onceflow.runtime.state.rocks.backend import RocksBackend

    return RocksBackend(options.memory_bytes or MEMORY_BYTES, snapshots=options.snapshots)


def has_rocksdb() -> bool:
    """Whether the extra is installed."""
    return find_spec("rocksdict") is not None
