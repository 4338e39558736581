"""Rows that go round, with slots and driver killed or frozen at any step: each leaves the loop once.

What the user's simulation runs is the engine itself, with a sink that tells what was committed. Each mutant
is one of the ways in which a loop goes wrong: what waits at the head is not in the checkpoint, or what comes
while the barrier is on its way round; a checkpoint that was given up stays in the next one; the loop ends
while a row is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import Ctx, Job, KeyedProcess, ValueState
from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.operators.iteration.head import IterationHead
from onceflow.runtime.records import LoopToken, Records
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.runtime.testing.violations import Violation
from onceflow.testing import simulate
from onceflow.testing.simulation import SimulationError, simulate_with

INPUT = {"rides-0": list(range(20)), "rides-1": list(range(20, 34))}


@dataclass(frozen=True)
class Ride:
    id: int
    rounds: int
    left: int


class Turn(KeyedProcess[int, Ride, Ride]):
    """Sends a ride round as often as its number says; each place on its way is another key."""

    seen = ValueState("seen", int)

    def process(self, ride: Ride, ctx: Ctx) -> Iterator[Ride]:
        self.seen.set((self.seen.get() or 0) + 1)
        yield Ride(ride.id, ride.rounds + 1, ride.left - 1)


def place(ride: Ride) -> int:
    return (ride.id * 7 + ride.rounds * 3) % 11


def carousel() -> Job:
    job = Job("carousel")
    rides = job.from_records(list(map(ride_of, range(34))), uid="rides")

    def go_round(loop: Any) -> tuple[Any, Any]:
        turned = loop.key_by(place).process(Turn(), uid="turn")
        return turned.filter(lambda ride: ride.left > 0), turned.filter(lambda ride: ride.left <= 0)

    rides.iterate(go_round, uid="loop").collect(uid="done")
    return job


def ride_of(n: int) -> Ride:
    return Ride(n, 0, 1 + n % 6)


ROWS = {"rides": {split: [ride_of(n) for n in numbers] for split, numbers in INPUT.items()}}


def test_each_row_leaves_the_loop_once_whatever_is_killed() -> None:
    report = simulate(carousel(), ROWS, seeds=60)
    assert report.rows == {"done": 34}
    assert len(report.crashes) == 7, "of every kind"


def test_each_row_leaves_a_loop_once_whose_rows_wait_on_disk() -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        report = simulate_with(state, carousel(), ROWS, range(1, 25))
    assert report.rows == {"done": 34}
    assert len(report.crashes) > 4


def test_nobody_is_warned_that_a_loop_stays_in_memory() -> None:
    graph = carousel().build()
    assert "iterate" in {state.kind for state in graph.states().values() if state is not None}
    assert graph.states_in_memory() == []


def _log_in_memory_alone(self: BackEdge, checkpoint_id: int) -> None:
    self._logged_id = checkpoint_id
    self._log = [waiting for waiting in self._queue if isinstance(waiting, Records)]


def test_rows_on_disk_that_are_not_logged_are_missed() -> None:
    mutant = Mutant("what is on disk is not logged", [(BackEdge, "begin_log", _log_in_memory_alone)])
    missed = pytest.raises((SimulationError, Violation), match=r"lacks [0-9]+ rows")
    with tight_rocksdb(rows_in_memory=1) as state, mutated(mutant), missed:
        simulate_with(state, carousel(), ROWS, [1, 2, 3, 4, 5, 98])


def _log_nothing_that_waits(self: BackEdge, checkpoint_id: int) -> None:
    self._logged_id, self._log = checkpoint_id, []


def _log_nothing_that_comes(self: BackEdge, records: Records) -> None:
    self._queue.append(records)


def _over_after_a_round(self: IterationHead) -> LoopToken | None:
    token = _original_token(self)
    return None if token is None else LoopToken(token.loop, token.round, True)


_original_token = IterationHead.token


def _log_on_where_one_was_given_up(self: BackEdge, checkpoint_id: int) -> None:
    self._logged_id, self._log = checkpoint_id, [*self._log, *self._queue]


MUTANTS = [
    (
        Mutant("what waits at the head is not logged", [(BackEdge, "begin_log", _log_nothing_that_waits)]),
        "lacks [0-9]+ rows",
    ),
    (
        Mutant("what comes before the barrier is not logged", [(BackEdge, "send", _log_nothing_that_comes)]),
        "lacks [0-9]+ rows",
    ),
    (
        Mutant("a log that was given up goes on", [(BackEdge, "begin_log", _log_on_where_one_was_given_up)]),
        "has [0-9]+ rows .* too many",
    ),
    (
        Mutant("one round of the token is enough", [(IterationHead, "token", _over_after_a_round)]),
        "rows came back to loop 'loop' after its end",
    ),
]


@pytest.mark.parametrize(("mutant", "told"), MUTANTS, ids=[mutant.title for mutant, _ in MUTANTS])
def test_a_loop_that_is_wrong_is_found(mutant: Mutant, told: str) -> None:
    with mutated(mutant), pytest.raises((SimulationError, Violation), match=told):
        simulate(carousel(), ROWS, seeds=[1, 2, 3, 4, 5, 98])
