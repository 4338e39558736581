"""Tally: the simulated job's own keyed operator, with state, and timers that fire in pieces."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceflow.runtime.operators.operator import MAIN, FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Records
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.testing.harness import TableRows
from onceflow.runtime.testing.sim_rows import RESULT_SCHEMA, RUNNING, WINDOW, Row, window_end
from onceflow.runtime.testing.violations import Breach, Violation


class Tally:
    """Counts records per key, and per key and window; a timer for each window sends it out."""

    def __init__(self) -> None:
        self._groups: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._windows: dict[tuple[int, int], tuple[int, int]] = {}
        self._timers: set[tuple[int, int]] = set()
        """(window end, key)."""
        self._watermark_ms = WATERMARK_MIN_MS

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for group, key, n in _rows(state, "counts"):
                self._groups[key] = group
                self._counts[key] = n
            for _, key, end, n, total in _rows(state, "windows"):
                self._windows[key, end] = (n, total)
            self._timers.update((end, key) for _, key, end in _rows(state, "timers"))

    def on_records(self, records: Records) -> None:
        assert records.key_hash is not None
        groups = key_groups_of(records.key_hash, self._context.max_parallelism).tolist()
        rows: list[Row] = []
        for group, key, ts, value in zip(
            groups, *(records.batch.column(i).to_pylist() for i in (1, 2, 3)), strict=True
        ):
            if group not in self._context.key_groups:
                raise Violation(Breach.PLACE, f"key {key} of group {group} came to {self._context.subtask}")
            self._groups[key] = group
            self._counts[key] = self._counts.get(key, 0) + 1
            rows.append((RUNNING, key, 0, self._counts[key], 0))
            end = window_end(ts)
            count, total = self._windows.get((key, end), (0, 0))
            self._windows[key, end] = (count + 1, total + value)
            self._timers.add((end, key))
        self._emit(rows)

    def on_watermark(self, time_ms: int) -> None:
        self._watermark_ms = time_ms

    def fire(self, rows_max: int) -> int:
        rows: list[Row] = []
        for end, key in self._due()[:rows_max]:
            self._timers.discard((end, key))
            rows.append((WINDOW, key, end, *self._windows.pop((key, end))))
        self._emit(rows)
        return len(rows)

    def snapshot(self) -> FrozenState | None:
        groups = self._groups
        return FrozenState(
            self._context.key_groups,
            {
                "counts": _table("key count", [(groups[k], k, n) for k, n in self._counts.items()]),
                "windows": _table(
                    "key end count total", [(groups[k], k, end, *v) for (k, end), v in self._windows.items()]
                ),
                "timers": _table("key end", [(groups[k], k, end) for end, k in self._timers]),
            },
        )

    def close(self) -> None:
        pass

    def _due(self) -> list[tuple[int, int]]:
        return sorted(timer for timer in self._timers if timer[0] - 1 <= self._watermark_ms)

    def _emit(self, rows: Sequence[Row]) -> None:
        if rows:
            columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
            self._out.emit(Records(pa.RecordBatch.from_arrays(columns, schema=RESULT_SCHEMA)), MAIN)


def _rows(state: RestoredState, name: str) -> list[Row]:
    return [row for b in state.batches(name) for row in zip(*(c.to_pylist() for c in b.columns), strict=True)]


_SCHEMAS: dict[str, pa.Schema] = {}


def _table(columns: str, rows: Sequence[Row]) -> FrozenRows:
    if columns not in _SCHEMAS:
        fields = [pa.field("key_group", pa.uint16(), nullable=False)]
        _SCHEMAS[columns] = pa.schema(fields + [pa.field(c, pa.int64()) for c in columns.split()])
    schema = _SCHEMAS[columns]
    values = list(zip(*sorted(rows), strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(v, f.type) for v, f in zip(values, schema, strict=True)]
    return TableRows(pa.Table.from_arrays(arrays, schema=schema))
