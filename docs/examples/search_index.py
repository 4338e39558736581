"""The latest state of each order, as a document that people search for."""

from dataclasses import dataclass

from onceflow import Job
from onceflow.sinks.opensearch import OpenSearchSink


@dataclass(frozen=True)
class Order:
    id: int
    customer: str
    state: str


job = Job("order-search")
orders = job.from_elements(Order(1, "ann", "paid"), Order(1, "ann", "sent"))
searchable = OpenSearchSink(
    "https://search:9200",
    "orders",
    key="id",
    headers={"Authorization": "ApiKey ${SEARCH_KEY}"},
    create_index={"mappings": {"properties": {"state": {"type": "keyword"}}}},
    bad_rows_to="orders-refused",
)
orders.sink_to(searchable, uid="orders-search")

if __name__ == "__main__":
    job.run()
