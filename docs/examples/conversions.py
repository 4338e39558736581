"""How many purchases of each hour followed a view of the same item by the same user, within an hour.

A view at 9:50 and a purchase at 10:10 belong together although they are in two windows: so they
are joined first, by how far they are apart, and only the pairs are counted by the hour.
"""

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count_distinct, tumbling

MINUTE = 60_000
HOUR = 60 * MINUTE


@dataclass(frozen=True)
class View:
    user: str
    item: str
    ts: int  # event time, ms


@dataclass(frozen=True)
class Purchase:
    user: str
    item: str
    number: int
    ts: int


job = Job("conversions")
times = WatermarkStrategy.bounded_out_of_orderness("1 h", event_time="ts")
views = job.from_elements(
    View("ann", "tea", 9 * HOUR + 50 * MINUTE),
    View("ann", "tea", 9 * HOUR + 55 * MINUTE),
    View("bob", "tea", 9 * HOUR),
    View("eve", "pot", 10 * HOUR),
    watermarks=times,
)
purchases = job.from_elements(
    Purchase("ann", "tea", 1, 10 * HOUR + 10 * MINUTE),
    Purchase("bob", "tea", 2, 10 * HOUR + 30 * MINUTE),  # too long after his view
    Purchase("eve", "pot", 3, 10 * HOUR + 20 * MINUTE),
    watermarks=times,
)
pairs = views.key_by("user", "item").interval_join(
    purchases.key_by("user", "item"), lower="0 s", upper="1 h"
)
hours = pairs.key_by("item").window(tumbling("1 h"))
# A purchase counts once, however often the item was viewed before.
conversions = hours.aggregate(purchases=count_distinct("number")).collect()
job.run(master="threads[1]")
found = [(c["item"], c["window_start"] // HOUR, c["purchases"]) for c in conversions]
assert sorted(found) == [("pot", 10, 1), ("tea", 10, 1)]
