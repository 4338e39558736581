"""Where operators get their tables from: what keeps the state is chosen here."""

from __future__ import annotations

from onceflow.runtime.state.heap.heap_groups import HeapGroups
from onceflow.runtime.state.heap.heap_panes import HeapPanes
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.table import GroupedTable, KeyedTable, Layout, PaneTable, TrackedTable

__all__ = ["Layout", "grouped_table", "keyed_table", "pane_table", "tracked_table"]


def keyed_table(layout: Layout) -> KeyedTable:
    return HeapTable(layout)


def pane_table(layout: Layout) -> PaneTable:
    return HeapPanes(layout)


def tracked_table(layout: Layout) -> TrackedTable:
    return HeapTable(layout, tracks_changes=True)


def grouped_table(layout: Layout) -> GroupedTable:
    return HeapGroups(layout)
