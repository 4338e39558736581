"""Loops against plain arithmetic: any records, each leaves after as many rounds as it says, whatever crashes.

What is drawn here are the records, in how many splits they come, and where the state is; the simulation draws
parallelism, order and crashes from a seed of each example. What is wrong with a loop is found by the mutants
of simulation/test_loops.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import Ctx, Job, KeyedProcess, ValueState
from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.state.overflow import StateBackend
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.runtime.testing.violations import Violation
from onceflow.testing import SimulationError, run
from onceflow.testing.simulation import simulate_with


@dataclass(frozen=True)
class Ride:
    id: int
    place: int
    left: int
    rounds: int


class Turn(KeyedProcess[int, Ride, Ride]):
    """Counts the rides of a place, and sends each to the next place."""

    seen = ValueState("seen", int)

    def process(self, ride: Ride, ctx: Ctx) -> Iterator[Ride]:
        self.seen.set(self.seen.get(0) + 1)
        yield Ride(ride.id, (ride.place + ride.id) % 5, ride.left - 1, ride.rounds + 1)


def carousel() -> Job:
    job = Job("carousel", max_parallelism=8)
    rides = job.from_elements(Ride(0, 0, 1, 0), uid="rides")

    def go_round(loop: Any) -> tuple[Any, Any]:
        turned = loop.key_by("place").process(Turn(), uid="turn")
        return turned.filter(lambda ride: ride.left > 0), turned.filter(lambda ride: ride.left <= 0)

    rides.iterate(go_round, uid="loop").collect(uid="done")
    return job


def check(rides: list[Ride], splits: int, seed: int, state: StateBackend | None) -> None:
    with run(carousel(), parallelism=2, rides=rides) as test:
        test.finish()
        found = Counter((row["id"], row["rounds"]) for row in test.rows("done"))
    assert found == Counter((ride.id, ride.left) for ride in rides)
    inputs = {"rides": {f"s{n}": rides[n::splits] for n in range(splits)}}
    simulate_with(state, carousel(), inputs, [seed])


RIDES = st.lists(
    st.builds(Ride, st.integers(0, 9), st.integers(0, 4), st.integers(1, 5), st.just(0)),
    min_size=1,
    max_size=24,
)
MANY = [Ride(n, n % 5, 1 + n % 5, 0) for n in range(24)]


@settings(max_examples=8, deadline=None)
@given(RIDES, st.integers(1, 3), st.integers(1, 1_000))
@example(MANY, 2, 1)
def test_each_ride_leaves_once_after_its_rounds(rides: list[Ride], splits: int, seed: int) -> None:
    check(rides, splits, seed, None)


@settings(max_examples=4, deadline=None)
@given(RIDES, st.integers(1, 3), st.integers(1, 1_000))
@example(MANY, 2, 1)
def test_rides_that_wait_on_disk(rides: list[Ride], splits: int, seed: int) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(rides, splits, seed, state)


def check_all(seeds: range) -> None:
    for seed in seeds:
        check(MANY, 2, seed, None)


def _nothing(self: BackEdge, checkpoint_id: int) -> None:
    self._logged_id, self._log = checkpoint_id, []


def test_rides_that_wait_and_are_in_no_checkpoint_are_missed() -> None:
    mutant = Mutant("what waits at the head is not logged", [(BackEdge, "begin_log", _nothing)])
    with mutated(mutant), pytest.raises((SimulationError, Violation), match="lacks"):
        check_all(range(1, 9))
