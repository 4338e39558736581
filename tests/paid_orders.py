"""Two streams to join in tests: orders, and what was paid for them."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import Job, WatermarkStrategy
from onceflow.runtime.api.stream import Stream

TIMES = WatermarkStrategy.bounded_out_of_orderness("10 s", event_time="ts")


@dataclass(frozen=True)
class Order:
    order_id: str
    item: str
    cents: int
    ts: int


@dataclass(frozen=True)
class Payment:
    ref: str
    cents: int
    ts: int


def streams() -> tuple[Job, Stream[Order], Stream[Payment]]:
    job = Job("pay")
    orders = job.from_elements(Order("a", "tea", 5, 0), watermarks=TIMES, uid="orders")
    payments = job.from_elements(Payment("a", 5, 0), watermarks=TIMES, uid="payments")
    return job, orders, payments
