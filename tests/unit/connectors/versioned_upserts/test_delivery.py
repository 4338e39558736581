"""Which rows are written next, and what becomes of those that the store does not take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.versioned_upserts.backend import Answer, Piece
from onceflow.connectors.versioned_upserts.delivery import Delivery, Limits
from onceflow.runtime.errors import Indeterminate, Retryable


def piece(count: int, first: int = 0) -> Piece:
    numbers = range(first, first + count)
    return Piece([str(n) for n in numbers], np.zeros(count, bool), pa.record_batch({"n": list(numbers)}))


def sent(delivery: Delivery) -> list[Piece]:
    """All that goes out before an answer."""
    found = []
    while (each := delivery.next_piece()) is not None:
        found.append(each)
    return found


def test_pieces_are_cut_by_rows_and_bytes_and_only_so_many_go_out_at_once() -> None:
    by_rows = Delivery([piece(10)], Limits(rows_max=4, bytes_max=1 << 20, calls_max=2))
    assert [each.keys for each in sent(by_rows)] == [list("0123"), list("4567")]
    by_bytes = Delivery([piece(10)], Limits(rows_max=100, bytes_max=24, calls_max=9))
    assert [len(each) for each in sent(by_bytes)] == [3, 3, 3, 1]


def test_what_is_busy_comes_again_in_smaller_pieces_one_at_a_time_and_grows_back() -> None:
    delivery = Delivery([piece(20)], Limits(4, 1 << 20, 2))
    first, second = sent(delivery)
    delivery.answered(first, Answer(busy=[1, 3]))
    delivery.answered(second, Answer())
    sizes = []
    while (each := delivery.next_piece()) is not None:
        sizes.append(len(each))
        delivery.answered(each, Answer())
    assert sizes == [4, 4, 4]
    assert not delivery.end_round()
    (again,) = sent(delivery)
    assert again.keys == ["1", "3"]
    assert again.rows.column("n").to_pylist() == [1, 3]
    delivery.answered(again, Answer())
    assert delivery.end_round()


def test_a_busy_store_gets_half_as_many_at_once() -> None:
    delivery = Delivery([piece(20)], Limits(8, 1 << 20, 2))
    first, second = sent(delivery)
    delivery.answered(first, Answer(busy=[0]))
    delivery.answered(second, Answer(busy=[0]))
    (third,) = sent(delivery)
    assert len(third) == 4


def test_a_call_that_fails_ends_the_round_and_a_round_without_progress_waits() -> None:
    delivery = Delivery([piece(6)], Limits(2, 1 << 20, 1))
    (first,) = sent(delivery)
    delivery.failed(first, Indeterminate("no answer"))
    assert sent(delivery) == []
    with pytest.raises(Retryable, match="no answer"):
        delivery.end_round()
    keys = []
    while (each := delivery.next_piece()) is not None:
        keys += each.keys
        delivery.answered(each, Answer())
    assert sorted(keys) == list("012345")
    assert delivery.end_round()


def test_a_store_that_is_only_busy_is_waited_for() -> None:
    delivery = Delivery([piece(2)], Limits(2, 1 << 20, 1))
    (first,) = sent(delivery)
    delivery.answered(first, Answer(busy=[0, 1]))
    with pytest.raises(Retryable, match="the store is too busy for 2 rows"):
        delivery.end_round()


def test_what_is_too_large_is_halved_down_to_the_row_that_is() -> None:
    delivery, written = Delivery([piece(5)], Limits(9, 1 << 20, 1)), []
    while (each := delivery.next_piece()) is not None:
        if "3" in each.keys:
            delivery.too_large(each, "too large")
        else:
            written += each.keys
            delivery.answered(each, Answer())
    assert written == list("0124")
    assert [(each.keys, reason) for each, reason in delivery.bad] == [(["3"], "too large")]
    assert delivery.end_round()


def test_bad_rows_are_kept_with_their_reasons() -> None:
    delivery = Delivery([piece(3)], Limits(9, 1 << 20, 1))
    (only,) = sent(delivery)
    delivery.answered(only, Answer(bad={1: "no date"}))
    assert [(each.keys, reason) for each, reason in delivery.bad] == [(["1"], "no date")]
    assert delivery.end_round()
