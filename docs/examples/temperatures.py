"""The mean temperature of each sensor's last minute, every 20 seconds."""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, mean, sliding


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float
    ts: int  # event time, ms


job = Job("temperatures")
readings = job.from_elements(
    Reading("attic", 20.0, 5_000),
    Reading("attic", 26.0, 45_000),
    Reading("attic", 23.0, 30_000),  # out of order
    Reading("attic", 29.0, 70_000),
    watermarks=WatermarkStrategy.bounded_out_of_orderness("20 s", event_time="ts"),
)
minutes = readings.key_by("sensor").window(sliding("1 min", "20 s"))
means = minutes.aggregate(celsius=mean("celsius")).collect()
job.run(master="threads[1]")
assert [(row["window_end"] // 1_000, row["celsius"]) for row in means] == [
    (20, 20.0),
    (40, 21.5),
    (60, 23.0),
    (80, 26.0),
    (100, 27.5),
    (120, 29.0),
]
