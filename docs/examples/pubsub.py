"""Orders of a subscription of Pub/Sub, and the latest total of each customer."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.pubsub import PubSubSource


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    cents: int


def add(total: Order, one: Order) -> Order:
    return Order(one.id, total.customer, total.cents + one.cents)


orders = PubSubSource(
    project_id="shop",
    subscriptions=["orders"],
    value=Json(Order),
)
job = Job("totals")
job.source(orders, uid="orders").key_by("customer").reduce(add, uid="totals").print()

if __name__ == "__main__":
    job.run()
