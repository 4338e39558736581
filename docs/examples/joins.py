"""Joins by key and event time: clicks with the ads that were shown at most a minute before."""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, col


@dataclass(frozen=True)
class Shown:
    user: str
    ad: str
    ts: int


@dataclass(frozen=True)
class Click:
    user: str
    link: str
    ts: int


job = Job("clicks")
times = WatermarkStrategy.bounded_out_of_orderness("2 min", event_time="ts")
shown = job.from_elements(
    Shown("ann", "tea", 0),
    Shown("ann", "cups", 50_000),
    Shown("bob", "tea", 60_000),
    watermarks=times,
)
clicks = job.from_elements(
    Click("ann", "tea", 70_000), Click("ann", "cups", 70_000), watermarks=times
)
joined = shown.key_by("user").interval_join(
    clicks.key_by("user"),
    "0 s",
    "1 min",
    how="left",
    where=col("ad") == col("link"),
    late_to="late",
)
late = joined.side_output("late_right").collect()
rows = joined.select("user", "ad", clicked=col("link").is_not_null()).collect()
job.run(master="threads[1]")
assert sorted(tuple(row.values()) for row in rows) == [
    ("ann", "cups", True),
    ("ann", "tea", False),
    ("bob", "tea", False),
]
assert late == []
