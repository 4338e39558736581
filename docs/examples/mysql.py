"""Orders appended to a table of MySQL, and the latest total of each customer kept in another."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.runtime.contracts import PartitionedSink
from onceflow.sinks.mysql import MySqlSink

SHOP = "mysql://onceflow@localhost/shop"


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
orders.sink_to(MySqlSink(SHOP, "orders", bad_rows_to="orders_refused"), uid="orders")
totals = orders.key_by("customer").reduce(add, uid="totals")
by_customer = MySqlSink(SHOP, "totals", key="customer", create_table=True)
assert isinstance(
    by_customer, PartitionedSink
)  # so all rows of a customer come to one subtask
totals.sink_to(by_customer, uid="totals-table")

if __name__ == "__main__":
    job.run()
