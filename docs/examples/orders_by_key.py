"""The latest state of each order, as a row of Cassandra."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.cassandra import CassandraSink


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    state: str


job = Job("orders-by-key")
orders = job.from_elements(Order(1, "ann", "paid"), Order(1, "ann", "sent"))
table = CassandraSink(
    ["cassandra1", "cassandra2"],
    keyspace="shop",
    table="orders",
    key="id",
    username="orders-job",
    password="${CASSANDRA_PASSWORD}",
    bad_rows_to="orders_refused",
)
orders.sink_to(table, uid="orders")

if __name__ == "__main__":
    job.run()
