"""Sweep: what has expired leaves memory in pieces, and seldom enough."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.state import sweep as sweeps
from onceflow.runtime.state.handles import MapState, ValueState
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.sweep import Sweep

ROWS = 3 * sweeps.FORGOTTEN_MAX


def filled(rows: int, at_ms: int) -> tuple[ValueState[int], Cursor]:
    """A state whose rows were all written at one time."""
    cursor = Cursor()
    state = ValueState("s", int, ttl=160).bind(cursor)
    state.of_rows.grow(rows)
    cursor.event_ms = at_ms
    for cursor.row in range(rows):
        state.set(cursor.row)
    return state, cursor


def held(state: ValueState[int]) -> int:
    return sum(value is not None for value in state.of_rows.values)


def test_a_piece_is_bounded_and_pieces_come_to_the_end() -> None:
    state, cursor = filled(ROWS, 1_000)
    sweep = Sweep(state._expiring)  # type: ignore[arg-type]
    cursor.passed_ms = 1_159
    assert len(sweep.piece()) == 0  # type: ignore[arg-type]
    cursor.passed_ms = 1_200
    for pieces in range(1, 4):
        forgotten = sweep.piece()
        assert forgotten is not None
        assert len(forgotten) == sweeps.FORGOTTEN_MAX
        assert held(state) == ROWS - pieces * sweeps.FORGOTTEN_MAX
    assert sweep.is_between_passes


def test_a_piece_looks_at_so_many_rows() -> None:
    state, cursor = filled(sweeps.LOOKED_AT_MAX + 1, 1_000)
    cursor.passed_ms, cursor.row, cursor.event_ms = 1_100, sweeps.LOOKED_AT_MAX, -1_000
    state.clear()
    state.set(7)  # long ago
    sweep = Sweep(state._expiring)  # type: ignore[arg-type]
    assert [len(sweep.piece()), len(sweep.piece())] == [0, 1]  # type: ignore[arg-type]


def test_passes_are_a_sixteenth_of_the_ttl_apart() -> None:
    state, cursor = filled(4, 1_000)
    sweep = Sweep(state._expiring)  # type: ignore[arg-type]
    assert sweep.piece() is None, "no time has come"
    looked = []
    for cursor.passed_ms in range(1_150, 1_181):
        if sweep.piece() is not None:
            looked.append(cursor.passed_ms)
    assert looked == [1_150, 1_160, 1_170, 1_180]
    assert held(state) == 0


def test_a_pass_begins_again_when_rows_are_renumbered() -> None:
    state, cursor = filled(ROWS, 1_000)
    sweep = Sweep(state._expiring)  # type: ignore[arg-type]
    cursor.passed_ms = 1_200
    sweep.piece()
    state.of_rows.keep(np.arange(ROWS - 10, ROWS))
    sweep.renumbered()
    assert len(sweep.piece()) == 10  # type: ignore[arg-type]
    assert held(state) == 0


def test_entries_go_and_the_rest_of_the_map_stays() -> None:
    cursor = Cursor()
    seen = MapState("m", str, int, ttl=160).bind(cursor)
    seen.of_rows.grow(1)
    cursor.row = 0
    for cursor.event_ms, name in ((1_000, "old"), (1_050, "new")):
        seen.put(name, 1)
    sweep = Sweep(seen._expiring)  # type: ignore[arg-type]
    cursor.passed_ms = 1_170
    assert sweep.piece().tolist() == [0]  # type: ignore[union-attr]
    assert seen.of_rows.values[0] == {"new": 1}
    cursor.passed_ms = 1_300
    sweep.piece()
    assert seen.of_rows.values[0] is None
