"""The whole job with crashes everywhere, its windows those that slide: over time, in memory and in RocksDB,
and over the rows of a key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onceflow.runtime.operators.windows.keyed_pane_operator import KeyedPaneOperator
from onceflow.runtime.operators.windows.pane_operator import PaneOperator
from onceflow.runtime.operators.windows.sliding_count_operator import Panes, SlidingCountOperator
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.choices import Choices, SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_sliding import world_of_rows, world_of_time
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import draw_options
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.runtime.testing.violations import Violation
from onceflow.runtime.testing.world import WorldOptions

SEEDS = 40
FEW_SEEDS = (0, 3, 53, 75, 130, 182)
"""Runs in which windows that are open are restored."""
WorldOf = Callable[[Choices, WorldOptions], SimWorld]


def run_seed(seed: int, world_of: WorldOf, state: StateBackend | None = None) -> None:
    choices = SeededChoices(seed)
    options = replace(draw_options(choices), has_real_windows=True)
    world_of(choices, options if state is None else replace(options, state=state)).run()


def run_few(world_of: WorldOf, state: StateBackend) -> None:
    for seed in FEW_SEEDS:
        run_seed(seed, world_of, state)


@pytest.mark.parametrize("world_of", [world_of_time, world_of_rows])
def test_seeds_with_crashes(world_of: WorldOf) -> None:
    for seed in {*range(SEEDS), *FEW_SEEDS}:
        run_seed(seed, world_of)


@pytest.mark.parametrize("world_of", [world_of_time, world_of_rows])
def test_seeds_with_crashes_and_the_windows_in_rocksdb(world_of: WorldOf) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        for seed in FEW_SEEDS[:3]:
            run_seed(seed, world_of, state)


def load_one_piece_less(self: Any, piece: Any) -> None:
    """A restored pane is left out."""
    if piece.num_rows > 1:
        original_load(self, piece.slice(1))


original_load = PaneOperator._load


def restore_nothing(self: Any, states: Any) -> None:
    """What is restored is thrown away."""


def keep_all_panes_but_the_last(self: SlidingCountOperator, panes: Panes, so_far: Any) -> None:
    """Panes go as if the next window began with the key's next row."""
    self._table.remove(panes.rows[panes.firsts < so_far[panes.keys] - 1])
    self._overflow.compact()


MUTANTS: tuple[tuple[Mutant, WorldOf, bool], ...] = (
    (
        Mutant("a restored pane is left out", [(PaneOperator, "_load", load_one_piece_less)]),
        world_of_time,
        False,
    ),
    (
        Mutant("keys' panes are not restored", [(KeyedPaneOperator, "restore", restore_nothing)]),
        world_of_time,
        True,
    ),
    (
        Mutant("panes of rows are not restored", [(SlidingCountOperator, "restore", restore_nothing)]),
        world_of_rows,
        False,
    ),
    (
        Mutant(
            "panes of rows go too early", [(SlidingCountOperator, "_let_go", keep_all_panes_but_the_last)]
        ),
        world_of_rows,
        False,
    ),
)


@pytest.mark.parametrize(
    ("mutant", "world_of", "by_key"), MUTANTS, ids=[mutant.title for mutant, _, _ in MUTANTS]
)
def test_mutant_is_killed(mutant: Mutant, world_of: WorldOf, by_key: bool) -> None:
    with tight_rocksdb(rows_in_memory=1) as rocks, mutated(mutant), pytest.raises(Violation):
        run_few(world_of, rocks if by_key else UNLIMITED)
