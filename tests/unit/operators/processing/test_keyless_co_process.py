"""CoProcess: two streams without a key see one object, their watermark, side outputs and lists."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from onceflow import (
    CoProcess,
    Ctx,
    Job,
    KeyedCoProcess,
    OperatorListState,
    SideOutput,
    ValueState,
    WatermarkStrategy,
)
from onceflow.runtime.errors import GraphError
from onceflow.testing import run, simulate


@dataclass(frozen=True)
class Order:
    item: str
    ts: int


@dataclass(frozen=True)
class Payment:
    cents: int
    ts: int


@dataclass(frozen=True)
class Said:
    what: str


class Both(CoProcess[Order, Payment, Said]):
    late = SideOutput("late", Said)
    seen = OperatorListState("seen", str)

    def process_left(self, record: Order, ctx: Ctx) -> Iterator[Said]:
        self.seen.add(record.item)
        if ctx.is_late:
            ctx.emit(self.late, Said(record.item))
        else:
            yield Said(f"{record.item} at {ctx.event_time}")

    def process_right(self, record: Payment, ctx: Ctx) -> list[Said]:
        return [Said(f"{record.cents} after {len(self.seen)}")]

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Said]:
        if not ctx.is_end_of_input:
            yield Said(f"watermark {watermark}")


TIMES = WatermarkStrategy.monotonous("ts")


def both() -> Job:
    job = Job("both")
    orders = job.from_elements(Order("x", 0), watermarks=TIMES, uid="orders")
    payments = job.from_elements(Payment(0, 0), watermarks=TIMES, uid="payments")
    made = orders.connect(payments).process(Both(), uid="both")
    made.collect(uid="said")
    made.side_output("late").collect(uid="late")
    return job


def test_records_of_both_the_lower_watermark_and_side_outputs() -> None:
    with run(both(), parallelism=1, orders=[Order("tea", 5)]) as job:
        assert job.records("said", Said) == [Said("tea at 5")]
        job.advance_to("10 ms", source="orders")
        assert job.records("said", Said) == [Said("tea at 5")], "the other stream is not there yet"
        job.advance_to("20 ms", source="payments")
        job.push(orders=[Order("cup", 7)])
        assert job.records("late", Said) == [Said("cup")]
        job.restart()
        job.push(payments=[Payment(3, 30)])
        said = job.records("said", Said)
        assert said[1].what.startswith("watermark ")
        assert said[-1] == Said("3 after 2"), "the list of the subtask outlives a restart"


class Counting(CoProcess[Order, Payment, Said]):
    """Each record once, whatever crashes: nothing depends on the order."""

    def process_left(self, record: Order, ctx: Ctx) -> Iterator[Said]:
        yield Said(record.item)

    def process_right(self, record: Payment, ctx: Ctx) -> Iterator[Said]:
        yield Said(f"{record.cents} cents")


@pytest.mark.parametrize("barriers", ["aligned", "unaligned"])
def test_each_record_once_under_crashes(barriers: str) -> None:
    job = Job("both")
    orders = job.from_elements(Order("x", 0), watermarks=TIMES, uid="orders")
    payments = job.from_elements(Payment(0, 0), watermarks=TIMES, uid="payments")
    orders.connect(payments).process(Counting(), uid="both").collect(uid="said")
    rows = {
        "orders": [Order(f"o{n}", n) for n in range(20)],
        "payments": [Payment(n, n) for n in range(20)],
    }
    report = simulate(job, rows, seeds=12, barriers=barriers)
    assert report.rows == {"said": 40}
    assert sum(report.crashes.values()) > 4


class Keyed(KeyedCoProcess[str, Order, Payment, Said]):
    def process_left(self, record: Order, ctx: Ctx) -> None: ...

    def process_right(self, record: Payment, ctx: Ctx) -> None: ...


class WithState(CoProcess[Order, Payment, Said]):
    kept = ValueState("kept", int)

    def process_left(self, record: Order, ctx: Ctx) -> None: ...

    def process_right(self, record: Payment, ctx: Ctx) -> None: ...


@pytest.mark.parametrize(
    ("process", "sentence"),
    [
        (Keyed(), "expected an object of a class derived from CoProcess"),
        (WithState(), r"belongs to a key, and it has none.*KeyedCoProcess\[K, L, R, O\].*both streams"),
    ],
)
def test_what_needs_a_key_is_refused(process: object, sentence: str) -> None:
    job = Job("both")
    orders = job.from_elements(Order("x", 0), uid="orders")
    payments = job.from_elements(Payment(0, 0), uid="payments")
    with pytest.raises(GraphError, match=sentence):
        orders.connect(payments).process(process)  # type: ignore[arg-type]
