"""A stream without a key: readings go out in batches, of ten or when event time goes on; bad ones aside."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, OperatorListState, Process, SideOutput, WatermarkStrategy


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float
    ts: int


@dataclass(frozen=True)
class Batch:
    sensors: list[str]


class Batches(Process[Reading, Batch]):
    waiting = OperatorListState("waiting", str)
    broken = SideOutput("broken", Reading)

    def process(self, reading: Reading, ctx: Ctx) -> Iterator[Batch]:
        if reading.celsius < -273.15:
            ctx.emit(self.broken, reading)
            return
        self.waiting.add(reading.sensor)
        if len(self.waiting) == 10:
            yield from self.batch()

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Batch]:
        yield from self.batch()

    def batch(self) -> Iterator[Batch]:
        if len(self.waiting):
            yield Batch(self.waiting.get())
            self.waiting.clear()


job = Job("batches")
readings = job.from_elements(
    *(Reading(f"room {n}", 20.0, n) for n in range(12)),
    Reading("attic", -300.0, 12),
    watermarks=WatermarkStrategy.monotonous("ts"),
)
batches = readings.process(Batches(), uid="batches")
rows, broken = batches.collect(), batches.side_output("broken").collect()
job.run(master="threads[1]")
assert [len(batch.sensors) for batch in rows] == [10, 2]
assert [reading.sensor for reading in broken] == ["attic"]
