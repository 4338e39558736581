"""CoMap, CoFlatMap and CoProcess against plain calls, for rows of two streams in any pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.processing.co_functions import (
    CoFlatMap,
    CoFunctionConfig,
    CoFunctionOperator,
    CoMap,
)
from onceflow.runtime.operators.processing.keyed_process import Ctx
from onceflow.runtime.operators.processing.keyless_co_process import CoProcess, KeylessCoOperator
from onceflow.runtime.operators.processing.keyless_process import KeylessConfig
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import LONE_SUBTASK, Collected
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.types.columns_of_records import RecordWriter, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


class Order(NamedTuple):
    item: str
    cups: int | None
    ts: int


class Payment(NamedTuple):
    cents: int
    ts: int


class Said(NamedTuple):
    what: str
    at: int


def of_order(order: Order) -> list[Said]:
    return [Said(order.item, n) for n in range(order.cups or 0)]


class Each(CoMap[Order, Payment, Said]):
    def map_left(self, record: Order) -> Said:
        return Said(record.item, record.ts)

    def map_right(self, record: Payment) -> Said:
        return Said("paid", record.cents)


class Several(CoFlatMap[Order, Payment, Said]):
    def flat_map_left(self, record: Order) -> Iterator[Said]:
        yield from of_order(record)

    def flat_map_right(self, record: Payment) -> list[Said] | None:
        return [Said("paid", record.cents)] if record.cents % 2 else None


class Process(CoProcess[Order, Payment, Said]):
    def process_left(self, record: Order, ctx: Ctx) -> Iterable[Said]:
        return of_order(record)

    def process_right(self, record: Payment, ctx: Ctx) -> Iterator[Said]:
        if record.cents % 2:
            yield Said("paid", record.cents)


LEFT, RIGHT, MADE = RecordReader(Order), RecordReader(Payment), RecordWriter(arrow_schema(Said))
Made = Callable[[], CoFunctionOperator | KeylessCoOperator]
CREATE: dict[str, Made] = {
    "map": CoFunctionConfig("co", Each(), LEFT, RIGHT, MADE).create,
    "flat_map": CoFunctionConfig("co", Several(), LEFT, RIGHT, MADE).create,
    "process": lambda: KeylessCoOperator(KeylessConfig("co", Process(), LEFT, MADE, True), RIGHT),
}


def expected(kind: str, row: Order | Payment) -> list[tuple[Said, int]]:
    """What is made of a row, and its event time."""
    if isinstance(row, Order):
        said = [Said(row.item, row.ts)] if kind == "map" else of_order(row)
    else:
        said = [Said("paid", row.cents)] if kind == "map" or row.cents % 2 else []
    return [(each, row.ts) for each in said]


ORDERS = st.builds(
    Order, st.sampled_from(["tea", "", "cup"]), st.none() | st.integers(0, 3), st.integers(0, 60)
)
PAYMENTS = st.builds(Payment, st.integers(0, 5), st.integers(0, 60))
PIECES = st.one_of(
    st.lists(ORDERS, min_size=1, max_size=6), st.lists(PAYMENTS, min_size=1, max_size=6), st.integers(0, 70)
)


def check(kind: str, program: list[Any]) -> None:
    operator, out, watermark = CREATE[kind](), Collected(), -1
    operator.open(LONE_SUBTASK, out)
    wanted: list[tuple[Said, int]] = []
    for piece in program:
        if isinstance(piece, int):
            watermark = max(watermark, piece)
            operator.on_watermark(watermark)
            continue
        times = np.array([row.ts for row in piece], np.int64)
        records = Records(batch_from_records(piece, arrow_schema(type(piece[0]))), times)
        (operator.on_records if isinstance(piece[0], Order) else operator.on_right_records)(records)
        wanted += [each for row in piece for each in expected(kind, row)]
    found = [
        (Said(**row), int(time))
        for _, records in out.emitted
        for row, time in zip(records.batch.to_pylist(), records.event_time, strict=True)  # type: ignore[arg-type]
    ]
    assert found == wanted


OFTEN: list[Any] = [
    [Order("tea", 2, 5), Order("cup", None, 3)],
    4,
    [Payment(1, 9), Payment(2, 1)],
    [Order("", 1, 0)],
]


@pytest.mark.parametrize("kind", CREATE)
@settings(max_examples=40, deadline=None)
@example(OFTEN)
@given(st.lists(PIECES, max_size=8))
def test_each_row_makes_what_its_method_makes_of_it(kind: str, program: list[Any]) -> None:
    check(kind, program)


def only_the_left(self: KeylessCoOperator, records: Records) -> None:
    """Rows of the right stream are left out."""


def test_an_operator_that_forgets_the_right_stream_is_found() -> None:
    mutant = Mutant("no right rows", [(KeylessCoOperator, "on_right_records", only_the_left)])
    with mutated(mutant), pytest.raises(AssertionError):
        check("process", OFTEN)
