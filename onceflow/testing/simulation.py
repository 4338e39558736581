"""Simulation of a user's own job: crashes at every step, and the output must be that of a run without any.

A seed draws everything: parallelism, in which order splits are read and messages arrive, what crashes when,
whether answers of the store are lost. What runs is the product (as in runtime/testing, which this stands on).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from onceflow.runtime.api.job import Job
from onceflow.runtime.checkpoint.log import LOG_FOLDER, AttemptStarted, decode_entry
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.options import IN_FLIGHT_MS, BarrierOptions
from onceflow.runtime.driver.options import Guarantee, barrier_options
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.functions.parameters import Parameters
from onceflow.runtime.functions.resolve import resolve
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.state.overflow import StateBackend
from onceflow.runtime.testing.choices import Choices, SeededChoices
from onceflow.runtime.testing.simulation import draw_options
from onceflow.runtime.testing.world import Crash, World, WorldOptions
from onceflow.testing.collecting_sink import SinkRows
from onceflow.testing.script import Rows
from onceflow.testing.stage import Stage, stage_of
from onceflow.testing.taps import first_difference, tapped

Output = dict[str, Counter[str]]
"""The committed rows of each sink, as text, without an order."""

_FAIR_SEEDS = range(1, 7)
_SHOWN = 5
_MOVES_MIN, _MOVES_PER_ROW = 20_000, 40


class SimulationError(OnceflowError):
    """The job's output is not what it is without crashes, or it is not the same each time."""


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What the runs of a simulation came to."""

    runs: int
    crashes: Mapping[str, int]
    """How many of each kind hit."""
    rows: Mapping[str, int]
    """The rows of each sink, the same in every run."""


class _Watch:
    """What a world has to be told of: here, only which attempt is the latest."""

    attempt = 0

    def on_log_entry(self, path: str, content: bytes) -> None:
        if path.startswith(f"{LOG_FOLDER}/"):
            position = int(path[len(LOG_FOLDER) + 1 : -len(".json")])
            entry = decode_entry(content, position, path)
            if isinstance(entry, AttemptStarted):
                self.attempt = max(self.attempt, entry.attempt)

    def on_delete(self, path: str) -> None:
        pass

    def check_complete(self) -> None:
        pass


@explained
def simulate(
    job: Job,
    inputs: Mapping[str, Rows],
    seeds: int | Iterable[int] = 1_000,
    params: Mapping[str, Any] | None = None,
    barriers: str = "aligned",
) -> SimulationReport:
    """Run a job over these rows (by the uids of its sources, as for `run`) once for each seed, with slots,
    driver or both killed or frozen at any step, and compare what each sink has committed with a run without
    a crash. Rows are compared without their order; floating-point numbers to twelve digits. Of a sink whose
    updates and deletes hang on the order in which splits are read, what they add up to is compared.

    Before that the job runs without crashes in several orders. Raises SimulationError naming the operator
    whose output differs: a function that reads a clock or throws dice, or a result that depends on which
    split is read first. `params` and `barriers`: as for Job.run. Raises SimulationError with the seed for a
    crash that changes the output, and what a function of the job's raises.
    """
    return simulate_with(None, job, inputs, seeds, params, barriers)


def simulate_with(
    state: StateBackend | None,
    job: Job,
    inputs: Mapping[str, Rows],
    seeds: int | Iterable[int],
    params: Mapping[str, Any] | None = None,
    barriers: str = "aligned",
) -> SimulationReport:
    """Do what `simulate` does, with the state in this backend in all runs with crashes; None: in one that
    each seed draws."""
    given = barrier_options(barriers, None, IN_FLIGHT_MS, Guarantee.EXACTLY_ONCE)
    simulation = _Simulation(job.build(), inputs, resolve(job.params, params or {}), given, state)
    expected, points = simulation.reference()
    crashes: Counter[str] = Counter()
    numbers = range(1, seeds + 1) if isinstance(seeds, int) else list(seeds)
    for seed in numbers:
        found, world = simulation.run_seed(seed, points)
        crashes.update(c.value for point, c in world.options.crashes.items() if point <= world.points)
        if found != expected:
            raise SimulationError(
                f"with seed {seed} the output of job {job.name!r} is not that of a run without crashes: "
                f"{_difference(expected, found)}. To see it again: "
                f"onceflow.testing.simulate(job, inputs, seeds=[{seed}])"
            )
    rows = {uid: its.total() for uid, its in expected.items()}
    return SimulationReport(len(numbers), dict(crashes), rows)


class _Simulation:
    """The runs of one job over the same rows."""

    def __init__(
        self,
        graph: JobGraph,
        inputs: Mapping[str, Rows],
        params: Parameters,
        barriers: BarrierOptions,
        state: StateBackend | None,
    ) -> None:
        self._graph = graph
        self._state = state
        self._barriers = barriers
        self._params = params
        self._inputs = {uid: its if isinstance(its, Mapping) else list(its) for uid, its in inputs.items()}
        stage = self._stage(graph, SeededChoices(0))
        self._rows = sum(len(items) for script in stage.scripts.values() for items in script.splits.values())
        self._adds_up: set[str] = set()
        """The sinks of which not the changes are compared, but what they add up to."""

    def reference(self) -> tuple[Output, int]:
        """The output without crashes, and how many crash points such a run passes. Raises SimulationError
        if there is no such output."""
        expected, world = self._run(self._graph, 0, WorldOptions(parallelism=(1,)))
        runs = [
            (seed, self._run(self._graph, seed, self._fair(seed))[0])
            for seed in _FAIR_SEEDS
            for _ in range(2)
        ]
        for _, found in runs:
            self._adds_up |= {uid for uid, its in found.items() if its != expected[uid] and _has_changes(its)}
        expected = self._compared(expected)
        for seed, found in runs:
            if self._compared(found) != expected:
                raise SimulationError(self._explain(seed, expected, self._compared(found)))
        return expected, world.points

    def run_seed(self, seed: int, points: int) -> tuple[Output, World]:
        """The output of a run with crashes."""
        choices = SeededChoices(seed)
        drawn = draw_options(choices)
        kinds = list(drawn.crashes.values()) or [list(Crash)[choices.choose(len(Crash), "crash")]]
        crashes = {1 + choices.choose(points, "crash point"): kind for kind in kinds}
        options = self._with_barriers(replace(drawn, crashes=crashes, resends=0))
        if self._state is not None:
            options = replace(options, state=self._state)
        found, world = self._run(self._graph, seed, options)
        return self._compared(found), world

    def _compared(self, found: Output) -> Output:
        return {uid: _sum(its) if uid in self._adds_up else its for uid, its in found.items()}

    def _with_barriers(self, drawn: WorldOptions) -> WorldOptions:
        """Where barriers overtake, operators take a few rows at a time: else there was little to overtake."""
        if self._barriers.overtake_after_ms is not None:
            return replace(drawn, overtakes=True, rows_max=2, steps_per_task=1)
        return replace(drawn, halts=self._barriers.halts)

    def _fair(self, seed: int) -> WorldOptions:
        drawn = draw_options(SeededChoices(seed))
        return WorldOptions(parallelism=drawn.parallelism[:1], shares_files=drawn.shares_files)

    def _run(self, graph: JobGraph, seed: int, options: WorldOptions) -> tuple[Output, World]:
        choices = SeededChoices(seed)
        stage = self._stage(graph, choices)
        slots_max = graph.max_parallelism
        options = replace(
            options,
            params=self._params,
            moves_max=_MOVES_MIN + _MOVES_PER_ROW * self._rows,
            parallelism=[min(slots, slots_max) for slots in options.parallelism],
        )
        world = World(choices, options, stage.graph, _Watch(), MemoryStore("simulated"))
        for output in stage.outputs.values():
            output.on_call = world.point
        world.run()
        return {uid: _content(output) for uid, output in stage.outputs.items()}, world

    def _stage(self, graph: JobGraph, choices: Choices) -> Stage:
        stage = stage_of(graph, self._inputs, choices.choose)
        for script in stage.scripts.values():
            script.has_ended = True
        return stage

    def _explain(self, seed: int, expected: Output, found: Output) -> str:
        """Who it is that gives another result without any crash."""
        graph = tapped(self._graph)
        alike = [self._run(graph, seed, self._fair(seed))[0] for _ in range(2)]
        other, _ = self._run(graph, 0, WorldOptions(parallelism=(1,)))
        difference = _difference(expected, found)
        name = self._graph.job
        if (uid := first_difference(graph, *alike)) is not None:
            return (
                f"job {name!r} is not deterministic: {uid!r} gives other rows for the same rows in the same "
                "order (a clock, a random number, the order of a set?), so that a replay after a crash would "
                f"change its output: {difference}"
            )
        uid = first_difference(graph, other, alike[0])
        return (
            f"the output of job {name!r} depends on the order in which splits are read or subtasks heard, "
            f"first at {uid!r}: {difference}. It is as exact as its input's order: give rows in one split, "
            "use event time, or allow more slack for late rows"
        )


def _content(output: SinkRows) -> Counter[str]:
    rows: Counter[str] = Counter()
    for records in output.committed:
        kinds = [0] * len(records) if records.kind is None else records.kind.tolist()
        for kind, row in zip(kinds, records.batch.to_pylist(), strict=True):
            rows[f"{'+-+-'[kind] if kind else ''}{_canonical(row)}"] += 1
    return rows


def _has_changes(rows: Counter[str]) -> bool:
    return any(text[0] in "+-" for text in rows)


def _sum(rows: Counter[str]) -> Counter[str]:
    """What changes add up to: rows that were taken back as often as they came are not there."""
    found: Counter[str] = Counter()
    for text, count in rows.items():
        found[text.lstrip("+-")] += -count if text[0] == "-" else count
    return Counter({text: count for text, count in found.items() if count})


def _canonical(value: Any) -> Any:
    """Numbers that differ in the order of an addition only are the same."""
    match value:
        case float():
            return float(f"{value:.12g}")
        case dict():
            return {name: _canonical(each) for name, each in value.items()}
        case list():
            return [_canonical(each) for each in value]
        case _:
            return value


def _difference(expected: Output, found: Output) -> str:
    for uid, rows in expected.items():
        lost, more = rows - found[uid], found[uid] - rows
        if lost or more:
            return f"sink {uid!r} lacks {_shown(lost)} and has {_shown(more)} too many"
    return "no difference"


def _shown(rows: Counter[str]) -> str:
    if not rows:
        return "no row"
    first = ", ".join(list(rows)[:_SHOWN])
    return f"{rows.total()} rows ({first}{', ...' if len(rows) > _SHOWN else ''})"
