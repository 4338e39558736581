"""Simulation: the whole job in one thread, a crash possible at every step.

    python -m onceflow.runtime.testing.simulation --seed 511     one run, with its trace
    python -m onceflow.runtime.testing.simulation -n 10000       many, with a progress line

A seed draws everything: the input, the options (swarm), the crash points, the schedule. A failure
prints the command that repeats it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Annotated

import typer

from onceflow.runtime.graph import JobGraph
from onceflow.runtime.testing.choices import Choices, ExhaustiveChoices, SeededChoices
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimSource, sim_graph
from onceflow.runtime.testing.world import Crash, World, WorldOptions

GraphOf = Callable[[SimSource, SimSink, int], JobGraph]
_CRASHES = list(Crash)
_LENGTHS = (60, 150, 400)
"""Crash points are drawn uniformly over one of these, so that short runs and late steps are hit too."""


@dataclass(slots=True)
class SimulationReport:
    """What a series of runs came to."""

    runs: int = 0
    moves: int = 0
    points: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    failed_seed: int | None = None
    failure: str = ""


def draw_options(choices: Choices) -> WorldOptions:
    """A swarm: runs differ in kind, not only in order (Groce et al., "Swarm testing", 2012)."""
    parallelism = [(1, 2, 2, 3)[choices.choose(4, "parallelism")]]
    if choices.choose(4, "rescale") == 3:
        parallelism += [1 + choices.choose(3, "new parallelism")]
    length = _LENGTHS[choices.choose(len(_LENGTHS), "length")]
    count = (0, 1, 1, 2, 2, 3)[choices.choose(6, "crashes")]
    crashes = {
        1 + choices.choose(length, "crash point"): _CRASHES[choices.choose(len(_CRASHES), "crash")]
        for _ in range(count)
    }
    return WorldOptions(
        parallelism=parallelism,
        splits=1 + choices.choose(3, "splits"),
        records_max=1 + choices.choose(4, "records"),
        keys=1 + choices.choose(4, "keys"),
        crashes=crashes,
        store_faults=(0, 0, 1, 2)[choices.choose(4, "store faults")],
        resends=(0, 0, 1, 2)[choices.choose(4, "resends")],
        early_timeouts=(0, 0, 0, 1)[choices.choose(4, "early timeouts")],
    )


def seeded_world(seed: int, graph: GraphOf = sim_graph, is_traced: bool = False) -> World:
    """The world of this seed, ready to run."""
    choices = SeededChoices(seed)
    return World(choices, draw_options(choices), graph, is_traced)


def run_seeds(seeds: Iterable[int], graph: GraphOf = sim_graph) -> SimulationReport:
    """Run until the first failure."""
    report = SimulationReport()
    for seed in seeds:
        world = seeded_world(seed, graph)
        try:
            world.run()
        except Exception as error:
            report.failed_seed = seed
            report.failure = f"{type(error).__name__}: {error}"
        _count(report, world)
        if report.failed_seed is not None:
            break
    return report


def run_exhaustive(graph: GraphOf = sim_graph, deviations_max: int = 1) -> SimulationReport:
    """The tiny job: every crash at every point, in every schedule with few deviations from the
    ordinary one. One slot, one record."""
    report = SimulationReport()
    for crash in (None, *Crash):
        point = 0
        while True:
            point += 1
            longest = 0
            crashes = {} if crash is None else {point: crash}
            options = WorldOptions(parallelism=(1,), splits=1, records_max=1, keys=1, crashes=crashes)
            for choices in ExhaustiveChoices(deviations_max):
                world = World(choices, options, graph)
                try:
                    world.run()
                except Exception as error:
                    report.failure = f"{crash} at {point}, choices {choices.taken}: {error!r}"
                _count(report, world)
                longest = max(longest, world.points)
                if report.failure:
                    return report
            if crash is None or point > longest:
                break
    return report


def _count(report: SimulationReport, world: World) -> None:
    report.runs += 1
    report.moves += world.moves
    report.points += world.points
    report.marks.update(world.marks)
    report.crashes.update(c.name for point, c in world.options.crashes.items() if point <= world.points)


def main(
    seed: Annotated[int | None, typer.Option(help="Run this one and print its trace.")] = None,
    n: Annotated[int, typer.Option("-n", help="How many seeds to run.")] = 5_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
) -> None:
    """Simulate the job with crashes; exit code 1 if the guarantee broke."""
    if seed is not None:
        raise SystemExit(_trace(seed))
    start = time.perf_counter()
    report = run_seeds(range(first, first + n))
    seconds = time.perf_counter() - start
    crashes = ", ".join(f"{count} {name}" for name, count in sorted(report.crashes.items()))
    print(f"{report.runs} seeds, {report.moves} moves, {report.points} crash points in {seconds:.1f} s")  # noqa: T201
    print(f"crashes: {crashes}")  # noqa: T201
    print("marks:", ", ".join(f"{mark} ({count})" for mark, count in sorted(report.marks.items())))  # noqa: T201
    if report.failed_seed is not None:
        print(f"FAILED {report.failure}\nrepeat: make sim SEED={report.failed_seed}")  # noqa: T201
        raise SystemExit(1)


def _trace(seed: int) -> int:
    world = seeded_world(seed, is_traced=True)
    try:
        world.run()
        outcome, code = "finished, nothing lost or doubled", 0
    except Exception as error:
        outcome, code = f"{type(error).__name__}: {error}", 1
    print("\n".join(world.trace))  # noqa: T201
    print(f"{world.options}\nseed {seed}: {outcome}")  # noqa: T201
    return code


if __name__ == "__main__":
    typer.run(main)
