"""Orders appended to a Delta table, and the latest total of each customer kept in another;
then the first table is read."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.delta import delta_source
from onceflow.runtime.contracts import SettlingSink
from onceflow.sinks.delta import DeltaSink


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
appended = DeltaSink(
    "orders", create_table=True, partition_by="customer", compact_every=50
)
orders.sink_to(appended, uid="orders")
totals = orders.key_by("customer").reduce(add, uid="totals")
by_customer = DeltaSink(
    "totals", key="customer", create_table=True, schema_evolution="add"
)
assert isinstance(by_customer, SettlingSink)  # so Spark can write by key, too
totals.sink_to(by_customer, uid="totals-table")

if __name__ == "__main__":
    job.run()

    again = Job("orders-again")
    written = again.source(delta_source("orders", Order), uid="orders")
    written.print()
    again.run()
