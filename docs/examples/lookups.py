"""Sales with customers from PostgreSQL, scores over HTTP, and prices from a table of one's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from onceflow import Job, errors_to
from onceflow.connectors.http_lookup import HttpLookup
from onceflow.connectors.postgres.lookup import PostgresLookup
from onceflow.runtime.contracts.lookup import Lookup


@dataclass(frozen=True)
class Sale:
    customer: str
    item: str


@dataclass(frozen=True)
class Customer:
    name: str
    country: str


@dataclass(frozen=True)
class Score:
    score: float | None


class Prices:
    """A Lookup: any table that can be asked by key, here in memory."""

    keys: Sequence[str] = ("item",)
    schema = pa.schema([("item", pa.string()), ("cents", pa.int64())])
    keys_at_once = 100

    async def look_up(self, keys: Sequence[tuple[Any, ...]]) -> Mapping[Any, Any]:
        prices = {"tea": 250}
        return {
            (item,): [{"item": item, "cents": prices[item]}]
            for (item,) in keys
            if item in prices
        }


prices: Lookup = Prices()
customers = PostgresLookup(
    "postgresql://onceflow@localhost/shop", "customers", Customer, key="name"
)
scores = HttpLookup("http://localhost:8080/scores/{customer}", Score)

job = Job("sales")
sales = job.from_elements(Sale("ann", "tea"), Sale("bob", "pot"))
priced = sales.lookup_join(prices, on="item", how="left", uid="prices")
known = priced.lookup_join(
    customers, on="customer", cache=(10_000, "5 min"), retries=3, uid="customers"
)
scored = known.lookup_join(
    scores, on="customer", how="left", on_error=errors_to("failed"), uid="scores"
)
scored.print()
scored.side_output("failed").print(label="failed")

if __name__ == "__main__":
    job.run()
