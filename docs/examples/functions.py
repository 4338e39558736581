"""A function object with a client of its own, a parameter and a secret; its results by size."""

from dataclasses import dataclass

from onceflow import FunctionContext, Job, Secret, col, errors_to, secret


@dataclass(frozen=True)
class Order:
    id: int
    amount: float


class Convert:
    """Euros, by a rate that is a parameter of the job."""

    def open(self, ctx: FunctionContext) -> None:
        self.rate = float(ctx.params["rate"])
        token = ctx.params["token"]
        assert isinstance(token, Secret)
        self.converted = ctx.metrics.counter("converted")
        self.header = {"Authorization": f"Bearer {token.reveal()}"}
        ctx.log.info(
            "subtask %d of %d converts at %s", ctx.subtask, ctx.parallelism, self.rate
        )

    def __call__(self, order: Order) -> Order:
        self.converted.inc()
        return Order(order.id, order.amount * self.rate)

    def close(self) -> None:
        self.header.clear()


async def checked(order: Order) -> Order:
    """In real life it asks somebody; up to `capacity` orders wait for an answer."""
    return order


job = Job("euros", params={"rate": 0.9, "token": secret(env="RATES_TOKEN")})
orders = job.from_elements(Order(1, 10.0), Order(2, 20.0))
checked_orders = orders.map_async(checked, capacity=50, timeout="5 s", retries=2)
converted = checked_orders.map(Convert(), on_error=errors_to("failed"))
failed = converted.side_output("failed").collect()
euros = converted.collect()
by_size = converted.split({"large": col("amount") > 10}, default="small")
large, small = by_size["large"].collect(), by_size["small"].collect()

if __name__ == "__main__":
    job.run()
    print(list(euros))
