"""Orders of an output port of NiFi, and the latest total of each customer."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.nifi import NifiSource


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    cents: int


def add(total: Order, one: Order) -> Order:
    return Order(one.id, total.customer, total.cents + one.cents)


orders = NifiSource(
    urls=["http://nifi:8080"],
    port="orders",
    value=Json(Order),
)
job = Job("totals")
job.source(orders, uid="orders").key_by("customer").reduce(add, uid="totals").print()

if __name__ == "__main__":
    job.run()
