"""Run the simulation from the command line.

python -m onceflow.runtime.testing.simulate --seed 511       one run, with its trace
python -m onceflow.runtime.testing.simulate --seeds 10000    many; a failure prints its seed
"""

from __future__ import annotations

import gc
import math
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer

from onceflow.runtime.testing.simulation import SimulationReport, run_seeds, seeded_world

CHUNK = 250
GARBAGE_OBJECTS = 50_000
CHUNK_CPU_S_MAX = 120
"""The most CPU time for the seeds of one chunk, which take 3 s. A run that never ends meets this limit, and
it is one of work: a machine that is busy with other things makes nothing fail."""


def run_parallel(seeds: range, processes: int) -> SimulationReport:
    """The same as `run_seeds`, on several processes.

    Raises BrokenProcessPool if a chunk has used CHUNK_CPU_S_MAX.
    """
    chunks = [range(first, min(first + CHUNK, seeds.stop)) for first in range(seeds.start, seeds.stop, CHUNK)]
    total = SimulationReport()
    # Worlds are cyclic and small: looking for them less often saves a twentieth of the time.
    with ProcessPoolExecutor(processes, initializer=gc.set_threshold, initargs=(GARBAGE_OBJECTS,)) as pool:
        for report in pool.map(_run_chunk, chunks):
            total.add(report)
            if total.failed_seed is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    return total


def _run_chunk(seeds: range) -> SimulationReport:
    limit_cpu(CHUNK_CPU_S_MAX)
    return run_seeds(seeds)


def limit_cpu(seconds: int) -> None:
    """The system ends this process when it has worked for so long from now on; waiting does not count."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time()) + seconds, hard))


def main(
    seed: Annotated[int | None, typer.Option(help="Run this one and print its trace.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds to run.")] = 5_000,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    processes: Annotated[int, typer.Option(help="How many at a time.")] = os.cpu_count() or 1,
) -> None:
    """Simulate the job with crashes; exit code 1 if the guarantee broke."""
    if seed is not None:
        raise SystemExit(_trace(seed))
    start = time.perf_counter()
    report = run_parallel(range(first, first + seeds), processes)
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
