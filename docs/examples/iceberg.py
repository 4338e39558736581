"""Orders appended to an Iceberg table, and the latest total of each customer kept in another."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.iceberg import IcebergSink

CATALOG = {"type": "rest", "uri": "http://localhost:8181"}


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    cents: int


def add(total: Order, one: Order) -> Order:
    return Order(one.id, total.customer, total.cents + one.cents)


job = Job("orders")
orders = job.from_elements(
    Order(1, "ann", 250), Order(2, "bob", 100), Order(3, "ann", 50)
)
appended = IcebergSink(
    CATALOG,
    "shop.orders",
    create_table=True,
    partition_by="bucket(16, customer)",
    expire="7 d",
)
orders.sink_to(appended, uid="orders")
totals = orders.key_by("customer").reduce(add, uid="totals")
by_customer = IcebergSink(CATALOG, "shop.totals", key="customer", create_table=True)
totals.sink_to(by_customer, uid="totals-table")

if __name__ == "__main__":
    job.run()
