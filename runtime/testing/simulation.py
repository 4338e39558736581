"""Simulation: the whole job in one thread, a crash possible at every step.

A seed draws everything: the input, the options (swarm), the crash points, the schedule. So a seed is a
run, and repeats it (`simulate.py` is the command).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX
from onceflow.runtime.slot.slot import STEPS_PER_TASK
from onceflow.runtime.state.overflow import UNLIMITED
from onceflow.runtime.testing.choices import Choices, ExhaustiveChoices, SeededChoices
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimSource, sim_graph
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.tight_state import INCREMENTAL
from onceflow.runtime.testing.violations import Breach
from onceflow.runtime.testing.world import Crash, World, WorldOptions

GraphOf = Callable[[SimSource, SimSink, int, bool], JobGraph]
_CRASHES = list(Crash)
_LENGTHS = (60, 150, 400)
"""Crash points are drawn uniformly over one of these, so that short runs and late steps are hit too."""
_SIZES = ((3, "splits"), (4, "records"), (4, "keys"))


@dataclass(slots=True)
class SimulationReport:
    """What a series of runs came to; ends with the first failure."""

    runs: int = 0
    moves: int = 0
    points: int = 0
    crashes: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    failed_seed: int | None = None
    failure: str = ""
    breach: Breach | None = None
    """What that failure broke of the guarantee; None: the code itself raised an error."""

    def add(self, other: SimulationReport) -> None:
        """Take in another series; of two failures the lower seed is kept."""
        self.runs += other.runs
        self.moves += other.moves
        self.points += other.points
        self.crashes += other.crashes
        self.marks += other.marks
        if other.failed_seed is not None and (
            self.failed_seed is None or other.failed_seed < self.failed_seed
        ):
            self.failed_seed, self.failure, self.breach = other.failed_seed, other.failure, other.breach


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
    splits, records_max, keys = (1 + choices.choose(n, what) for n, what in _SIZES)
    return WorldOptions(
        parallelism=parallelism,
        splits=splits,
        records_max=records_max,
        keys=keys,
        crashes=crashes,
        store_faults=(0, 0, 2, 6)[choices.choose(4, "store faults")],
        resends=(0, 0, 1, 2)[choices.choose(4, "resends")],
        early_timeouts=(0, 0, 1, 2)[choices.choose(4, "early timeouts")],
        has_real_windows=choices.choose(10, "real windows") == 9,
        shares_files=keys % 2 == 1,
        state=UNLIMITED if keys % 2 else INCREMENTAL,
        piece_rows_max=1 if splits % 2 else PIECE_ROWS_MAX,
        steps_per_task=1 if splits % 2 else STEPS_PER_TASK,
    )


def seeded_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """The world of this seed, ready to run. Not aligned: at-least-once, and only loss is a failure."""
    choices = SeededChoices(seed)
    options = replace(draw_options(choices), is_aligned=is_aligned)
    return SimWorld(choices, options, graph, is_traced)


def fair_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """The world of this seed on a fair day: nothing crashes, is lost, late or in doubt."""
    choices = SeededChoices(seed)
    options = replace(
        draw_options(choices), crashes={}, store_faults=0, resends=0, early_timeouts=0, is_aligned=is_aligned
    )
    return SimWorld(choices, options, graph, is_traced)


def halting_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """The world of this seed with sources that stand still for each checkpoint."""
    choices = SeededChoices(seed)
    return SimWorld(choices, replace(draw_options(choices), halts=True), graph, is_traced)


def overtaking_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """The world of this seed with barriers that overtake what they can, and operators that take a row at a
    time, so that much can be overtaken."""
    choices = SeededChoices(seed)
    options = replace(draw_options(choices), overtakes=True, rows_max=1, steps_per_task=1)
    return SimWorld(choices, options, graph, is_traced)


def damaged_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """A world in which everything is killed up to three times, and each time a file is damaged that is
    there twice: then nothing may be lost, and the job may not be stuck."""
    choices = SeededChoices(seed)
    options = draw_options(choices)
    points = [1 + choices.choose(_LENGTHS[1], "crash point") for _ in range(3)]
    crashes = {**options.crashes, **dict.fromkeys(points, Crash.KILL_ALL)}
    options = replace(options, crashes=crashes, damages=len(points), is_aligned=is_aligned)
    return SimWorld(choices, options, graph, is_traced)


def run_seeds(
    seeds: Iterable[int],
    graph: GraphOf = sim_graph,
    is_aligned: bool = True,
    world_of: Callable[[int, GraphOf, bool], World] = seeded_world,
) -> SimulationReport:
    """Run until the first failure."""
    report = SimulationReport()
    for seed in seeds:
        world = world_of(seed, graph, is_aligned)
        try:
            world.run()
        except Exception as error:
            report.failed_seed = seed
            report.failure = f"{type(error).__name__}: {error}"
            report.breach = getattr(error, "breach", None)
        _count(report, world)
        if report.failed_seed is not None:
            break
    return report


def run_exhaustive(
    deviations_max: int,
    crashes: Sequence[Crash | None] = (None, *Crash),
    graph: GraphOf = sim_graph,
    stride: int = 1,
) -> SimulationReport:
    """The tiny job, one slot and one record: each of these crashes at every `stride`-th point, in every
    schedule with so many deviations from the ordinary one."""
    report = SimulationReport()
    for crash in crashes:
        point = 1 - stride
        while True:
            point += stride
            longest = 0
            at = {} if crash is None else {point: crash}
            options = WorldOptions(parallelism=(1,), splits=1, records_max=1, keys=1, crashes=at)
            for choices in ExhaustiveChoices(deviations_max):
                world = SimWorld(choices, options, graph)
                try:
                    world.run()
                except Exception as error:
                    report.failure = f"{crash} at {point}, choices {choices.taken}: {error!r}"
                    report.breach = getattr(error, "breach", None)
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
