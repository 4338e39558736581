"""Joins by key: clicks with ads that were shown at most a minute before, in one window, or ever."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import CoGroup, GroupWindow, Job, WatermarkStrategy, col, tumbling


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


@dataclass(frozen=True)
class Rate:
    user: str
    shown: int
    clicked: int


@dataclass(frozen=True)
class Price:
    ad: str
    cents: int
    ts: int


class Rates(CoGroup[Shown, Click, Rate]):
    def group(
        self, left: list[Shown], right: list[Click], window: GroupWindow
    ) -> Iterator[Rate]:
        yield Rate(window.key, len(left), len(right))


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
hours = shown.key_by("user").window_join(
    clicks.key_by("user"), tumbling("1 h"), where=col("ad") == col("link")
)
by_hour = hours.select("user", "ad", "window_start").collect()
rates = (
    shown.key_by("user")
    .co_group(clicks.key_by("user"), tumbling("1 h"), Rates())
    .collect()
)
ever = shown.key_by("user").join(
    clicks.key_by("user"), where=col("ad") == col("link"), ttl="1 d", uid="ever"
)
seen = ever.select("user", "ad").collect()
prices = job.from_elements(
    Price("tea", 5, 0), Price("tea", 7, 65_000), watermarks=times
)
paid = clicks.key_by("link").temporal_join(
    prices.key_by("ad"), where=col("cents") > 5, uid="paid"
)
costs = paid.select("link", "cents").collect()
job.run(master="threads[1]")
assert sorted(tuple(row.values()) for row in rows) == [
    ("ann", "cups", True),
    ("ann", "tea", False),
    ("bob", "tea", False),
]
assert late == []
assert sorted(row["ad"] for row in by_hour) == ["cups", "tea"]
assert sorted(row["ad"] for row in seen) == ["cups", "tea"]
assert sorted(rates, key=str) == [Rate("ann", 2, 2), Rate("bob", 1, 0)]
assert costs == [{"link": "tea", "cents": 7}]
