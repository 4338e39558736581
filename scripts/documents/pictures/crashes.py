"""Crash windows: one run, repeated with driver and slots killed at each of its crash points in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from documents.pictures.observed import Event, ObservedWorld
from documents.pictures.svg import Drawing
from onceflow.runtime.testing.world import Crash, WorldOptions

OPTIONS = WorldOptions(parallelism=(1,), splits=1, records_max=3, keys=1, piece_rows_max=1, steps_per_task=1)
SINKS = 2
WIDTH, LINE, TOP, STEP, DOT = 780, 242, 44, 34, 13

STEPS = {
    "> Trigger": "the driver tells the slot: checkpoint 1",
    "before write_copy": "the slot has written its state",
    "< Acked": "the slot has acked",
    "after create": "manifest 1 is in the log",
    "> Commit": "the driver tells the slot: commit 1",
    "produce done": "rows are in a transaction",
    "add ledger done": "the ledger is in it, too",
    "commit done": "the transaction is committed",
    "< Committed": "the slot has told the driver",
}
AFTERWARDS = {
    "again": (
        "blue",
        "Only checkpoint 0 is durable:",
        "everything is read again.",
        "Nothing of it was visible.",
    ),
    "all": (
        "green",
        "Checkpoint 1 is durable, its",
        "output is not there: it is",
        "committed before reading goes on.",
    ),
    "some": ("orange", "One sink's ledger says 1:", "it is skipped. The other", "one's output is committed."),
    "none": ("soft", "Both ledgers say 1:", "the output is there,", "nothing is written again."),
}


@dataclass(frozen=True)
class Gap:
    """What lies between two steps: the points of it, and what a run came to that was killed there."""

    step: str
    outcomes: Sequence[str]


def picture() -> str:
    seed, world = next((seed, w) for seed in range(1_000) if shows(w := watched(seed, OPTIONS)))
    return drawn(gaps(seed, world))


def watched(seed: int, options: WorldOptions) -> ObservedWorld:
    """A run to its end. Raises Violation if a row is lost or doubled."""
    world = ObservedWorld(seed, options)
    world.run()
    return world


def shows(world: ObservedWorld) -> bool:
    """Both sinks have rows in checkpoint 1, and it is not the last one."""
    found = [name for name, _ in steps(world)]
    return [found.count(name) for name in STEPS.values()] == [1, 1, 1, 1, 1, SINKS, SINKS, SINKS, 1]


def steps(world: ObservedWorld) -> list[tuple[str, int]]:
    """The steps of checkpoint 1, and the number of crash points before each."""
    begin = next((n for n, e in enumerate(world.events) if e.what == "> Trigger"), 0)
    end = next((n for n, e in enumerate(world.events) if e.what == "< Committed"), 0)
    return [(STEPS[e.what], e.point) for e in world.events[begin : end + 1] if _is_step(e)]


def _is_step(event: Event) -> bool:
    return event.what in STEPS and not (event.what == "before write_copy" and event.who == "driver")


def gaps(seed: int, world: ObservedWorld) -> list[Gap]:
    found = steps(world)
    ends = [point for _, point in found[1:]] + [found[-1][1] + 3]
    return [
        Gap(step, [outcome(seed, point) for point in range(begin + 1, end + 1)])
        for (step, begin), end in zip(found, ends, strict=True)
    ]


def outcome(seed: int, point: int) -> str:
    """What became of the run whose driver and slot were killed there."""
    world = watched(seed, replace(OPTIONS, crashes={point: Crash.KILL_ALL}))
    crash = next(n for n, e in enumerate(world.events) if e.what == "crash")
    if world.events[crash].detail == 0:
        return "again"
    recovery = world.events[crash : crash + next(
        n for n, e in enumerate(world.events[crash:]) if e.what == "< Running"
    )]  # fmt: skip
    written = sum(e.what == "commit done" for e in recovery)
    return {SINKS: "all", 0: "none"}.get(written, "some")


def drawn(found: Sequence[Gap]) -> str:
    drawing = Drawing(WIDTH, TOP + STEP * len(found) + 20)
    drawing.text(LINE, 24, "what happens", anchor="end", style="bold")
    drawing.text(LINE + 26, 24, "killed here", style="bold")
    drawing.text(532, 24, "and started again", style="bold")
    drawing.line(LINE + 12, TOP, LINE + 12, TOP + STEP * len(found), "line", 2)
    names = [gap.step for gap in found]
    for row, gap in enumerate(found):
        sink = f" (sink {names[: row + 1].count(gap.step)})" if names.count(gap.step) > 1 else ""
        y = TOP + row * STEP + 8
        drawing.text(LINE, y + 4, f"{gap.step}{sink}", anchor="end", style="small")
        drawing.circle(LINE + 12, y, 4, "ink")
        for number, each in enumerate(gap.outcomes):
            drawing.circle(LINE + 32 + number * DOT, y + STEP / 2, 5, AFTERWARDS[each][0])
    at = TOP + 8.0
    dots = [(row, each) for row, gap in enumerate(found) for each in gap.outcomes]
    for each, group in groupby(dots, key=lambda dot: dot[1]):
        rows = [row for row, _ in group]
        top = max(at, TOP + (rows[0] + rows[-1]) / 2 * STEP - 6)
        colour, *words = AFTERWARDS[each]
        drawing.line(516, TOP + rows[0] * STEP + 14, 516, TOP + rows[-1] * STEP + STEP, colour, 4)
        for line, text in enumerate(words):
            drawing.text(532, top + 14 + 15 * line, text, style="small")
        at = top + 15 * len(words) + 8
    return drawing.svg()
