"""State and timers of each key: a fire is told once if a sensor stays hot for ten seconds."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    Ctx,
    Job,
    KeyedProcess,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
)


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float
    ts: int


@dataclass(frozen=True)
class Fire:
    sensor: str
    since: int


class FireAlarm(KeyedProcess[str, Reading, Fire]):
    hot_since = ValueState("hot_since", int)
    late = SideOutput("late", Reading)

    def process(self, record: Reading, ctx: Ctx) -> None:
        since = self.hot_since.get()
        if ctx.is_late:
            ctx.emit(self.late, record)
        elif record.celsius < 60 and since is not None:
            ctx.timers.delete_event_time(since + 10_000)
            self.hot_since.clear()
        elif record.celsius >= 60 and since is None:
            self.hot_since.set(record.ts)
            ctx.timers.event_time(record.ts + 10_000)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Fire]:
        yield Fire(ctx.key, fired.time - 10_000)


job = Job("fires")
readings = job.from_elements(
    Reading("attic", 80.0, 1_000),
    Reading("cellar", 90.0, 2_000),
    Reading("cellar", 20.0, 5_000),
    Reading("attic", 85.0, 30_000),
    watermarks=WatermarkStrategy.monotonous("ts"),
)
fires = readings.key_by("sensor").process(FireAlarm(), uid="alarm")
rows, late = fires.collect(), fires.side_output("late").collect()
job.run(master="threads[1]")
assert rows == [Fire("attic", 1_000)]
assert late == []
