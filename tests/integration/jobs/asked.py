"""Numbered orders ask for their prices, which takes a while, and are written.

onceflow run asked.py ... -- OUTPUT_FOLDER ORDERS ORDERS_A_SECOND ordered|unordered
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from onceflow import Job


@dataclass(frozen=True)
class Order:
    id: int


@dataclass(frozen=True)
class Priced:
    id: int
    cents: int


def order(number: int) -> Order:
    return Order(number)


class Prices:
    """Answers after up to 40 ms, sooner for some."""

    async def open(self, ctx: object) -> None:
        self.asked = asyncio.Semaphore(100)

    async def __call__(self, order: Order) -> Priced:
        async with self.asked:
            await asyncio.sleep(order.id * 7 % 40 / 1_000)
        return Priced(order.id, order.id * 100)


def build(arguments: list[str]) -> Job:
    output, orders, per_second, how = arguments
    job = Job("asked")
    come = job.data_generator(order, count=int(orders), rate=float(per_second), uid="orders")
    priced = come.map_async(Prices(), ordered=how == "ordered", capacity=100, uid="ask")
    priced.to_files(output, format="jsonl", uid="out")
    return job
