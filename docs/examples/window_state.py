"""State of a window and of a key: means while a window fills, how many there were, and the highest of all."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    Job,
    SideOutput,
    ValueState,
    WatermarkStrategy,
    WindowBounds,
    WindowCtx,
    WindowProcess,
    WindowState,
    at_watermark,
    every_rows,
    tumbling,
)


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float
    ts: int


@dataclass(frozen=True)
class Mean:
    sensor: str
    celsius: float
    highest: float
    results_before: int


@dataclass(frozen=True)
class Sent:
    start: int
    results: int


class Means(WindowProcess[str, Reading, Mean]):
    sent = WindowState("sent", int)  # of this window of this key
    highest = ValueState("highest", float)  # of the key, for all its windows
    counted = SideOutput("counted", Sent)

    def process(
        self,
        key: str,
        window: WindowBounds | None,
        readings: list[Reading],
        ctx: WindowCtx,
    ) -> Iterator[Mean]:
        mean = sum(each.celsius for each in readings) / len(readings)
        self.highest.set(max(mean, self.highest.get(mean)))
        yield Mean(key, mean, self.highest.get(mean), self.sent.get(0))
        self.sent.set(self.sent.get(0) + 1)

    def clear(self, window: WindowBounds, ctx: WindowCtx) -> None:
        ctx.emit(self.counted, Sent(window.start, self.sent.get(0)))


job = Job("means")
readings = job.from_elements(
    Reading("attic", 20.0, 0),
    Reading("attic", 22.0, 10),
    Reading("attic", 24.0, 20),
    Reading("attic", 12.0, 1_500),
    watermarks=WatermarkStrategy.monotonous("ts"),
)
early = at_watermark(early=every_rows(2))
windows = readings.key_by("sensor").window(tumbling("1 s"))
means = windows.trigger(early, results="accumulating").process(Means(), uid="means")
rows, counted = means.collect(), means.side_output("counted").collect()
job.run(master="threads[1]")
assert [row.celsius for row in rows] == [21.0, 22.0, 12.0]
assert [row.results_before for row in rows] == [0, 1, 0]
assert rows[-1].highest == 22.0
assert counted == [Sent(0, 2), Sent(1_000, 1)]
