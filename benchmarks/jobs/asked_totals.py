"""A job whose state is asked while it runs (benchmarks/queries.py): a count and a sum for each user.

ASKED_KEYS, ASKED_RATE and ASKED_FOLDER in the environment say how many users, how many records a second, and
where results go. It runs until it is stopped, so what it counts stays in state.
"""

import os
from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy, count, sum_, tumbling


@dataclass(frozen=True, slots=True)
class Purchase:
    user: int
    amount: int
    ts: int


job = Job("asked-totals")
purchases = job.data_generator(
    Purchase,
    rate=float(os.environ["ASKED_RATE"]),
    fields={"user": (0, int(os.environ["ASKED_KEYS"])), "amount": (1, 500), "ts": "time"},
    watermarks=WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts"),
    uid="purchases",
)
totals = purchases.key_by("user").window(tumbling("1 d"))
made = totals.aggregate(n=count(), total=sum_("amount"), uid="totals")
made.to_files(os.environ["ASKED_FOLDER"], uid="days")
