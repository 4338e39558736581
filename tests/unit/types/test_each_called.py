"""A function that `map` calls, and that raises what `map` takes for the end of the records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job, errors_to
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.operators import failed_records, stateless
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.types.each_called import called_for_each
from onceflow.testing import run

PRICES = {"a": 5}


@dataclass(frozen=True)
class Order:
    item: str
    n: int


ORDERS = [Order("a", 1), Order("?", 2), Order("a", 3)]


def price(order: Order) -> int:
    """`next` of what has nothing is a slip that many make."""
    return next(price for item, price in PRICES.items() if item == order.item)


def priced(order: Order) -> Order:
    return Order(order.item, price(order))


BUILT: dict[str, Callable[[Any], Any]] = {
    "map": lambda orders: orders.map(priced),
    "filter": lambda orders: orders.filter(lambda order: price(order) > 5),
    "key_by": lambda orders: orders.key_by(price).reduce(lambda a, b: b),
    "split": lambda orders: orders.split(lambda order: "x" * price(order), into=["xxxxx"])["xxxxx"],
}


def end_in_the_middle(build: Callable[[Any], Any]) -> None:
    job = Job("stopped")
    build(job.from_elements(ORDERS[0], uid="orders")).print(uid="out")
    said = r"failed on the record in .* at offset 1, .*StopIteration"
    with pytest.raises(OnceflowError, match=said), run(job, orders=ORDERS) as test:
        test.rows("out")


@pytest.mark.parametrize("build", BUILT.values(), ids=list(BUILT))
def test_stop_iteration_is_an_error_of_its_record_and_not_the_end_of_the_batch(
    build: Callable[[Any], Any],
) -> None:
    end_in_the_middle(build)
    unchecked = Mutant("unchecked", [(stateless, "check_called", lambda calls, records: None)])
    silent = pytest.raises((AssertionError, pytest.fail.Exception, pa.ArrowInvalid))
    with mutated(unchecked), silent:
        end_in_the_middle(build)


def set_aside() -> None:
    job = Job("set-aside")
    kept = job.from_elements(ORDERS[0], uid="orders").map(priced, on_error=errors_to("unpriced"))
    kept.print(uid="out")
    kept.side_output("unpriced").print(uid="unpriced")
    with run(job, orders=ORDERS) as test:
        assert [row["n"] for row in test.rows("out")] == [5, 5]
        (failed,) = test.rows("unpriced")
        assert "StopIteration" in failed["error"]


def test_such_a_record_can_be_set_aside() -> None:
    set_aside()
    unchecked = Mutant("unchecked", [(failed_records, "check_called", lambda calls, records: None)])
    with mutated(unchecked), pytest.raises(AssertionError):
        set_aside()


def test_as_many_results_as_records() -> None:
    assert called_for_each(divmod, [7, 8], [2, 3]) == [(3, 1), (2, 2)]
    with pytest.raises(RuntimeError, match="StopIteration"):
        called_for_each(price, ORDERS)
