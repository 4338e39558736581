"""Where operators get their tables from: what keeps the state is chosen here."""

from __future__ import annotations

from onceflow.runtime.state.heap.heap_panes import HeapPanes
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.table import KeyedTable, Layout, PaneTable, TrackedTable

__all__ = ["Layout", "keyed_table", "pane_table", "tracked_table"]


def keyed_table(layout: Layout, kernels: bool | None = None) -> KeyedTable:
    return HeapTable(layout, kernels)


def pane_table(layout: Layout, kernels: bool | None = None) -> PaneTable:
    return HeapPanes(layout, kernels)


def tracked_table(layout: Layout, kernels: bool | None = None) -> TrackedTable:
    return HeapTable(layout, kernels, tracks_changes=True)
