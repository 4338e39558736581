"""Two splits read at unequal pace by one slot: the lowest of their watermarks counts."""

from __future__ import annotations

from dataclasses import dataclass

from documents.pictures.observed import ObservedWorld, first_run
from documents.pictures.svg import Drawing
from onceflow.runtime.records import Records, Watermark
from onceflow.runtime.testing.sim_job import OUT_OF_ORDERNESS_MS
from onceflow.runtime.testing.world import WorldOptions

OPTIONS = WorldOptions(parallelism=(1,), splits=2, records_max=12, keys=3, piece_rows_max=1, steps_per_task=1)
CHANNEL = (0, 0, 0)
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 780, 400, 60, 24, 570, 350
COLOURS = ("blue", "orange")
RECORDS_MIN, RECORDS_MAX = 14, 22


@dataclass(frozen=True)
class Reading:
    """What the source of the run has read, in order, and how far its watermark was behind each record."""

    splits: list[int]
    times_ms: list[int]
    watermarks_ms: list[int | None]
    """What it sent last when the record had been read; None: nothing yet."""


def picture() -> str:
    world = first_run(OPTIONS, lambda world: shows(reading(world)))
    return drawn(reading(world))


def reading(world: ObservedWorld) -> Reading:
    split_of = {r.id: n for n, records in enumerate(world.input.splits.values()) for r in records}
    splits: list[int] = []
    times: list[int] = []
    watermarks: list[int | None] = []
    for event in world.events:
        if event.what != "read" or event.detail[0] != CHANNEL:
            continue
        match event.detail[1]:
            case Records(batch, event_time) if event_time is not None:
                splits += [split_of[n] for n in batch.column("id").to_pylist()]
                times += event_time.tolist()
                watermarks += [watermarks[-1] if watermarks else None] * len(batch)
            case Watermark(time_ms) if time_ms < 1 << 60 and watermarks:
                watermarks[-1] = time_ms
    return Reading(splits, times, watermarks)


def shows(read: Reading) -> bool:
    """Both splits are long, one is clearly ahead of the other for long, and both are read in turns."""
    by_split = [[t for s, t in zip(read.splits, read.times_ms, strict=True) if s == n] for n in (0, 1)]
    turns = sum(a != b for a, b in zip(read.splits, read.splits[1:], strict=False))
    if not RECORDS_MIN <= len(read.splits) <= RECORDS_MAX or min(map(len, by_split)) < 6 or turns < 5:
        return False
    ends = [max(times) for times in by_split]
    return 1.5 * min(ends) < max(ends) < 3 * min(ends) and len({*read.watermarks_ms}) >= 6


def drawn(read: Reading) -> str:
    drawing = Drawing(WIDTH, HEIGHT)
    count, low, high = len(read.splits), -OUT_OF_ORDERNESS_MS - 2, max(read.times_ms) + 3

    def x(n: float) -> float:
        return LEFT + 14 + n * (RIGHT - LEFT - 20) / count

    def y(time_ms: float) -> float:
        return BOTTOM - (time_ms - low) / (high - low) * (BOTTOM - TOP)

    for time in range(0, high, 10):
        drawing.line(LEFT, y(time), RIGHT, y(time), "line", 1)
        drawing.text(LEFT - 8, y(time) + 4, str(time), "soft", "end", "small")
    drawing.text(LEFT, BOTTOM + 30, "records in the order in which they are read →", "soft", style="small")
    drawing.text(LEFT, TOP - 8, "event time, ms", "soft", style="small")
    for split, colour in enumerate(COLOURS):
        highest, points = None, []
        for n, (of, time) in enumerate(zip(read.splits, read.times_ms, strict=True)):
            highest = max(highest or 0, time) if of == split else highest
            if highest is not None:
                at = highest - OUT_OF_ORDERNESS_MS - 1
                points += [(x(n), y(at)), (x(n + 1), y(at))]
        drawing.path(points, colour, 1.5, "3 4")
    sent = [(n, w) for n, w in enumerate(read.watermarks_ms) if w is not None]
    drawing.path([p for n, w in sent for p in ((x(n), y(w)), (x(n + 1), y(w)))], "green", 3)
    for n, (split, time) in enumerate(zip(read.splits, read.times_ms, strict=True)):
        drawing.circle(x(n), y(time), 6, COLOURS[split], "paper")
    _legend(drawing)
    return drawing.svg()


def _legend(drawing: Drawing) -> None:
    left, lines = RIGHT + 24, TOP + 30
    for split, colour in enumerate(COLOURS):
        top = lines + split * 62
        drawing.circle(left + 8, top, 6, colour, "paper")
        drawing.text(left + 26, top + 4, f"records of split {split}")
        drawing.path([(left - 2, top + 24), (left + 18, top + 24)], colour, 1.5, "3 4")
        drawing.text(left + 26, top + 28, "its watermark: highest", "soft", style="small")
        drawing.text(
            left + 26, top + 42, f"time less {OUT_OF_ORDERNESS_MS} ms, less 1", "soft", style="small"
        )
    top = lines + 150
    drawing.path([(left - 2, top), (left + 18, top)], "green", 3)
    drawing.text(left + 26, top + 4, "the source sends", style="bold")
    drawing.text(left + 26, top + 22, "the lowest of both")
