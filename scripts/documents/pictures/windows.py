"""Windows of ten seconds, as onceflow.testing shows them: when they fire, and what is late for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from documents.pictures.svg import Drawing
from onceflow import Job, WatermarkStrategy, count, sum_, tumbling
from onceflow.testing import run

SIZE_MS, SLACK_MS = 10_000, 2_000
TIMES_S = (1, 4, 3, 8, 11, 9, 12.5, 7, 14, 18, 16, 21, 23, 15, 24)
"""The event times of the records, in the order in which they come."""
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 780, 400, 60, 28, 570, 350


@dataclass(frozen=True)
class Reading:
    sensor: str
    ts: int


@dataclass
class Run:
    """What a test saw: the records that were late, and after which record each window fired, with what."""

    late: set[int] = field(default_factory=set)
    fired: list[tuple[int, int, int]] = field(default_factory=list)
    """The number of the record, the window's end in ms, how many records it has counted."""


def picture() -> str:
    return drawn(observed())


def observed() -> Run:
    """The job of the picture, one record after the other."""
    job = Job("windows")
    strategy = WatermarkStrategy.bounded_out_of_orderness(SLACK_MS, event_time="ts")
    readings = job.from_elements(Reading("attic", 0), watermarks=strategy, uid="readings")
    windows = readings.key_by("sensor").window(tumbling(SIZE_MS))
    windows.aggregate(count=count(), total=sum_("ts")).print(uid="counts")
    seen = Run()
    with run(job, readings=[]) as test:
        for number, time in enumerate(TIMES_S):
            late, fired = test.late_records, len(test.counts)
            test.push(readings=[Reading("attic", round(1000 * time))])
            if test.late_records > late:
                seen.late.add(number)
            seen.fired += [(number, row["window_end"], row["count"]) for row in test.counts[fired:]]
    return seen


def drawn(seen: Run) -> str:
    drawing = Drawing(WIDTH, HEIGHT)
    high = 30

    def x(n: float) -> float:
        return LEFT + 20 + n * (RIGHT - LEFT - 28) / len(TIMES_S)

    def y(seconds: float) -> float:
        return BOTTOM - (seconds + 4) / (high + 4) * (BOTTOM - TOP)

    ends = {end // 1000: (number, counted) for number, end, counted in seen.fired}
    for start in range(0, high, SIZE_MS // 1000):
        end = start + SIZE_MS // 1000
        until = x(ends[end][0]) if end in ends else RIGHT
        drawing.rect(LEFT, y(end) + 1, until - LEFT, y(start) - y(end) - 2, "wash", radius=5)
        drawing.text(LEFT - 8, y(end) + 4, f"{end} s", "soft", "end", "small")
        if end in ends:
            drawing.line(until, y(start) - 2, until, y(end) + 2, "orange", 3)
            drawing.text(
                until + 9, y(end) + 17, f"fires: count = {ends[end][1]}", "orange", style="small bold"
            )
        else:
            drawing.text(LEFT + 10, y(end) + 17, "still open", "soft", style="small")
    drawing.text(LEFT - 8, y(0) + 4, "0 s", "soft", "end", "small")
    drawing.text(LEFT, TOP - 10, "event time", "soft", style="small")
    drawing.text(LEFT, BOTTOM + 30, "records in the order in which they come →", "soft", style="small")
    points, highest = [], 0.0
    for n, time in enumerate(TIMES_S):
        highest = max(highest, time)
        mark = highest - SLACK_MS / 1000
        points += [(x(n), y(mark)), (x(n + 1), y(mark))]
    drawing.path(points, "green", 2.5)
    for n, time in enumerate(TIMES_S):
        is_late = n in seen.late
        drawing.circle(x(n), y(time), 6, "paper" if is_late else "blue", "red" if is_late else "paper")
    _legend(drawing)
    return drawing.svg()


def _legend(drawing: Drawing) -> None:
    left, top = RIGHT + 24, TOP + 30
    drawing.circle(left + 8, top, 6, "blue", "paper")
    drawing.text(left + 26, top + 4, "a record in time")
    drawing.circle(left + 8, top + 34, 6, "paper", "red")
    drawing.text(left + 26, top + 38, "a late record: its")
    drawing.text(left + 26, top + 54, "window had fired")
    drawing.path([(left - 2, top + 84), (left + 18, top + 84)], "green", 2.5)
    drawing.text(left + 26, top + 88, "the watermark: highest")
    drawing.text(left + 26, top + 104, f"time less {SLACK_MS // 1000} s")
    drawing.rect(left - 2, top + 126, 20, 24, "wash", radius=3)
    drawing.line(left + 18, top + 126, left + 18, top + 150, "orange", 3)
    drawing.text(left + 26, top + 136, "a window, until the")
    drawing.text(left + 26, top + 152, "watermark is at its end")
