"""A job whose source is ten times as fast as the function behind its exchange (benchmarks/back_pressure.py).

The function takes a millisecond a record and counts the records of each key; it waits rather than works, so
that what is measured is the queue in front of it and not the machine.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from onceflow import Ctx, Job, KeyedProcess, ValueState, WatermarkStrategy


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    customer: int
    ts: int  # event time, ms
    item: str


@dataclass(frozen=True, slots=True)
class Seen:
    customer: int
    orders: int


class SlowCount(KeyedProcess[int, Order, Seen]):
    """Takes a millisecond for each order."""

    orders = ValueState("orders", int)

    def __init__(self, ms: float) -> None:
        self._seconds = ms / 1_000

    def process(self, order: Order, ctx: Ctx) -> Iterator[Seen]:
        time.sleep(self._seconds)
        count = (self.orders.get() or 0) + 1
        self.orders.set(count)
        yield Seen(order.customer, count)


def nowhere(batch: pa.RecordBatch) -> None:
    """Where the results go."""


def build(arguments: list[str]) -> Job:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, required=True, help="records a second that the source has")
    parser.add_argument("--ms", type=float, default=1.0, help="of the function, for a record")
    options = parser.parse_args(arguments)
    job = Job("slow-step")
    (
        job.data_generator(
            Order,
            rate=options.rate,
            fields={"id": "number", "customer": (0, 999), "ts": "time"},
            watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts"),
            uid="orders",
        )
        .key_by("customer")
        .process(SlowCount(options.ms), uid="slow")
        .foreach_batch(nowhere, uid="nowhere")
    )
    return job
