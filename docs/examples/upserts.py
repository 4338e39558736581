"""The latest total of each customer, kept in Redis under `totals:CUSTOMER`."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.redis import RedisSink


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    cents: int


def add(total: Order, one: Order) -> Order:
    return Order(one.id, total.customer, total.cents + one.cents)


job = Job("totals")
orders = job.from_elements(
    Order(1, "ann", 250), Order(2, "bob", 100), Order(3, "ann", 50)
)
totals = orders.key_by("customer").reduce(add, uid="totals")
in_redis = RedisSink(
    "redis://localhost:6379/0", "totals", key="customer", expire="30 d"
)
totals.sink_to(in_redis, uid="totals-redis")

if __name__ == "__main__":
    job.run()
