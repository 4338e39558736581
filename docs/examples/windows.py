"""Event-time windows of each key with every built-in aggregate, and what comes too late for them."""

from dataclasses import dataclass

from onceflow import (
    Job,
    WatermarkStrategy,
    approx_count_distinct,
    approx_quantile,
    col,
    collect_list,
    count,
    count_distinct,
    count_window,
    cumulative,
    first,
    last,
    max_,
    mean,
    min_,
    processing_time,
    quantile,
    session,
    sliding,
    sum_,
    tumbling,
)


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int  # event time, ms


job = Job("totals")
purchases = job.from_elements(
    Purchase("ann", 5, 1_000),
    Purchase("ann", 7, 4_000),
    Purchase("ann", 1, 31_000),
    watermarks=WatermarkStrategy.bounded_out_of_orderness(
        "2 s", event_time="ts", idle_after="30 s"
    ),
)
by_user = purchases.key_by("user")
windows = by_user.window(tumbling("10 s")).late_to("late")
totals = windows.aggregate(
    count=count(),
    total=sum_("amount"),
    in_cents=sum_(col("amount") * 100),
    low=min_("amount"),
    high=max_("amount"),
    mean=mean("amount"),
    first=first("amount"),
    last=last("amount"),
)
late = totals.side_output("late").collect()
rows = totals.collect()
moving = by_user.window(sliding("10 s", "5 s")).aggregate(count=count()).collect()
visits = by_user.window(session("5 s")).aggregate(count=count()).collect()
by_amount = by_user.window(session(lambda purchase: purchase.amount * 1_000))
long_visits = by_amount.aggregate(count=count()).collect()
so_far = by_user.window(cumulative("20 s", "10 s")).aggregate(count=count())
grown = so_far.collect()
pairs = by_user.window(count_window(2)).aggregate(total=sum_("amount")).collect()
last_two = by_user.window(count_window(2, slide=1)).aggregate(total=sum_("amount"))
moving_totals = last_two.collect()
by_clock = by_user.window(processing_time(tumbling("1 h"))).aggregate(count=count())
came = by_clock.collect()
kept = windows.aggregate(amounts=collect_list("amount"), kinds=count_distinct("amount"))
amounts = kept.collect()
spread = windows.aggregate(
    median=quantile("amount", 0.5),
    high=approx_quantile("amount", 0.99),
    kinds=approx_count_distinct("amount"),
).collect()
everybody = purchases.window_all(tumbling("1 min")).aggregate(count=count()).collect()
updated = windows.allowed_lateness("1 min", results="accumulating")
again = updated.aggregate(count=count()).collect()
latest = windows.process(
    lambda user, window, purchases: [purchases[-1]], returns=Purchase
).collect()
largest = windows.reduce(
    lambda one, other: one if one.amount > other.amount else other
).collect()

job.run(master="threads[1]")
assert rows[0] == {
    "user": "ann", "window_start": 0, "window_end": 10_000, "count": 2, "total": 12, "in_cents": 1_200,
    "low": 5, "high": 7, "mean": 6.0, "first": 5, "last": 7,
}  # fmt: skip
assert [(row["window_end"], row["count"]) for row in moving] == [
    (5_000, 2),
    (10_000, 2),
    (35_000, 1),
    (40_000, 1),
]
assert [(row["window_start"], row["window_end"]) for row in long_visits] == [
    (1_000, 11_000),
    (31_000, 32_000),
]
assert [(row["window_start"], row["window_end"]) for row in visits] == [
    (1_000, 9_000),
    (31_000, 36_000),
]
assert [(row["window_end"], row["count"]) for row in grown] == [
    (10_000, 2),
    (20_000, 2),
    (40_000, 1),
]
assert pairs == [{"user": "ann", "total": 12}]
assert [row["total"] for row in moving_totals] == [5, 12, 8]
assert sum(row["count"] for row in came) == 3
assert [(row["amounts"], row["kinds"]) for row in amounts] == [([5, 7], 2), ([1], 1)]
assert [(row["median"], row["high"], row["kinds"]) for row in spread] == [
    (6.0, 7.0, 2),
    (1.0, 1.0, 1),
]
assert everybody == [{"window_start": 0, "window_end": 60_000, "count": 3}]
assert [row["count"] for row in again] == [2, 1]
assert largest == [Purchase("ann", 7, 4_000), Purchase("ann", 1, 31_000)]
assert latest == [Purchase("ann", 7, 4_000), Purchase("ann", 1, 31_000)]
assert late == []
