"""A table of PostgreSQL, followed by another one that has its open orders only."""

from dataclasses import dataclass

import polars as pl
from onceflow import Job
from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.sinks.postgres import PostgresSink


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    state: str


orders = PostgresCdcSource(
    url="postgresql://replicator@localhost/shop",
    table="orders",
    of=Order,
    slot="onceflow_orders",
    publication="onceflow_orders",
)
job = Job("open-orders")
is_open = job.source(orders, uid="orders").filter(pl.col("state") == "open")
reports = PostgresSink(
    "postgresql://onceflow@localhost/reports", "open_orders", key="id"
)
is_open.sink_to(reports, uid="open-orders")

if __name__ == "__main__":
    job.run()
