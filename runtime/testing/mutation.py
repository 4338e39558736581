"""Mutants: code that is wrong on purpose, put in place for a while, and what counts as noticing it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.testing.sim_job import sim_graph
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import (
    GraphOf,
    SimulationReport,
    fair_world,
    run_exhaustive,
    run_seeds,
    seeded_world,
)
from onceflow.runtime.testing.violations import Breach

SEEDS_MAX = 3_000


@dataclass(frozen=True, slots=True)
class Mutant:
    """Each `owner.name` is replaced by `replacement`."""

    title: str
    replacements: Sequence[tuple[Any, str, Any]]
    breaches: Set[Breach] = frozenset()
    """What it is meant to break. Only this kills it in a simulation: a mutant whose code merely crashes
    would die too, and show nothing about the checkers."""
    is_right_on_fair_days: bool = True
    """Whether nothing is wrong as long as nothing crashes, is lost, late or in doubt."""
    graph: GraphOf = sim_graph
    """The job in which it is hunted."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a mutant died; `by` is empty if it survived."""

    title: str
    by: str
    because: str
    seconds: float


@contextmanager
def mutated(mutant: Mutant) -> Iterator[None]:
    """The code is wrong inside."""
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in mutant.replacements]
    try:
        for owner, name, replacement in mutant.replacements:
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)


def killed_by(
    mutant: Mutant, seed: int, world_of: Callable[[int, GraphOf, bool], SimWorld] = seeded_world
) -> SimulationReport | None:
    """The run of this seed, if it breaks what the mutant is meant to break."""
    with mutated(mutant):
        report = run_seeds([seed], mutant.graph, world_of=world_of)
    return report if report.breach in mutant.breaches else None


def hunt(mutant: Mutant, seeds_max: int = SEEDS_MAX) -> Verdict:
    """Every crash point of the tiny job first, then seeds, until the simulation notices."""
    start = time.perf_counter()
    with mutated(mutant):
        report: SimulationReport | None = run_exhaustive(deviations_max=0, graph=mutant.graph)
    assert report is not None
    by = f"schedule {report.runs} of the tiny job"
    if report.breach not in mutant.breaches:
        report = next(filter(None, (killed_by(mutant, seed) for seed in range(seeds_max))), None)
        by = f"seed {report.failed_seed}" if report else ""
    return Verdict(mutant.title, by, report.failure if report else "", time.perf_counter() - start)


def wrong_on_fair_days(mutant: Mutant, seeds: Sequence[int]) -> Sequence[str]:
    """What fails on the fair days of these seeds though the mutant is not meant to break it then."""
    allowed = frozenset[Breach]() if mutant.is_right_on_fair_days else mutant.breaches
    with mutated(mutant):
        reports = [run_seeds([seed], mutant.graph, world_of=fair_world) for seed in seeds]
    return [report.failure for report in reports if report.failure and report.breach not in allowed]
