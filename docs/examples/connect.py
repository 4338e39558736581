"""Two streams in one function: orders wait for their payment, and what is not paid in time is told."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    CoFlatMap,
    CoMap,
    CoProcess,
    Ctx,
    Job,
    KeyedCoProcess,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
)


@dataclass(frozen=True)
class Order:
    order_id: str
    item: str
    ts: int


@dataclass(frozen=True)
class Payment:
    order_id: str
    cents: int
    ts: int


@dataclass(frozen=True)
class Paid:
    order_id: str
    item: str
    cents: int


class Pay(KeyedCoProcess[str, Order, Payment, Paid]):
    order = ValueState("order", Order)
    payment = ValueState("payment", Payment)
    unpaid = SideOutput("unpaid", Order)

    def process_left(self, record: Order, ctx: Ctx) -> Iterator[Paid]:
        self.order.set(record)
        ctx.timers.event_time(record.ts + 60_000)
        return self.match()

    def process_right(self, record: Payment, ctx: Ctx) -> Iterator[Paid]:
        self.payment.set(record)
        return self.match()

    def match(self) -> Iterator[Paid]:
        order, payment = self.order.get(), self.payment.get()
        if order is not None and payment is not None:
            yield Paid(order.order_id, order.item, payment.cents)

    def on_timer(self, fired: Timer, ctx: Ctx) -> None:
        order = self.order.get()
        if order is not None and self.payment.get() is None:
            ctx.emit(self.unpaid, order)
        self.order.clear()
        self.payment.clear()


@dataclass(frozen=True)
class Line:
    text: str


class Lines(CoMap[Order, Payment, Line]):
    def map_left(self, record: Order) -> Line:
        return Line(f"order {record.item}")

    def map_right(self, record: Payment) -> Line:
        return Line(f"payment {record.cents}")


class Cents(CoFlatMap[Order, Payment, Line]):
    def flat_map_left(self, record: Order) -> None:
        """Orders say nothing."""

    def flat_map_right(self, record: Payment) -> Iterator[Line]:
        yield Line(f"{record.cents} cents")


class Large(CoProcess[Order, Payment, Line]):
    large = SideOutput("large", Payment)

    def process_left(self, record: Order, ctx: Ctx) -> None:
        """Orders have no amount."""

    def process_right(self, record: Payment, ctx: Ctx) -> Iterator[Line]:
        if record.cents > 400:
            ctx.emit(self.large, record)
        else:
            yield Line(f"{record.cents} cents, at {ctx.event_time} ms")


job = Job("payments")
times = WatermarkStrategy.bounded_out_of_orderness("1 min", event_time="ts")
orders = job.from_elements(
    Order("a", "tea", 0), Order("b", "cup", 1), watermarks=times, uid="orders"
)
payments = job.from_elements(Payment("a", 500, 9), watermarks=times, uid="payments")
paid = (
    orders.key_by("order_id")
    .connect(payments.key_by("order_id"))
    .process(Pay(), uid="pay")
)
matched, unpaid = paid.collect(), paid.side_output("unpaid").collect()
lines = orders.connect(payments).map(Lines()).collect()
cents = orders.connect(payments).flat_map(Cents()).collect()
large = orders.connect(payments).process(Large()).side_output("large").collect()
job.run(master="threads[1]")
assert matched == [Paid("a", "tea", 500)]
assert unpaid == [Order("b", "cup", 1)]
assert sorted(line.text for line in lines) == ["order cup", "order tea", "payment 500"]
assert cents == [Line("500 cents")]
assert large == [Payment("a", 500, 9)]
