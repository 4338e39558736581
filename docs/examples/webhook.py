"""Large orders, posted to a service that remembers the keys of requests."""

from dataclasses import dataclass

from onceflow import Job, col
from onceflow.sinks.http import HttpSink


@dataclass(frozen=True)
class Order:
    id: int
    cents: int


job = Job("large-orders")
orders = job.from_elements(Order(1, 250), Order(2, 90_000))
alerts = HttpSink(
    "https://alerts.example/orders",
    batch_rows=50,
    headers={"Authorization": "Bearer ${ALERTS_TOKEN}"},
    bad_rows_to="https://alerts.example/refused",
)
orders.filter(col("cents") > 10_000).sink_to(alerts, uid="alerts")

if __name__ == "__main__":
    job.run()
