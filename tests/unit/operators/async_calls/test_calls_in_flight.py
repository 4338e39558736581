"""Which calls are made when, and which go on: held against what is said of it, step by step."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from onceflow.runtime.operators.async_calls.calls_in_flight import Call, CallsInFlight
from onceflow.runtime.records import Records

ROWS = Records(pa.RecordBatch.from_pydict({"n": list(range(100))}))


def calls(*numbers: int) -> list[Call]:
    return [Call(ROWS, n, n) for n in numbers]


def rows(found: Sequence[Call]) -> list[int]:
    return [call.row for call in found]


def filled(
    *numbers: int, capacity: int = 3, ordered: bool = True, timeout_ms: float | None = None
) -> CallsInFlight:
    book = CallsInFlight(capacity, ordered, timeout_ms)
    book.add(calls(*numbers))
    return book


def answer(book: CallsInFlight, *numbers: int) -> None:
    for call in book.in_order():
        if call.row in numbers:
            book.answer(call, f"r{call.row}", None)


def test_so_many_are_asked_at_a_time_and_more_is_too_much() -> None:
    book = filled(1, 2, 3)
    assert not book.is_full
    book.add(calls(4, 5))
    assert book.is_full
    assert rows(book.to_ask(0)) == [1, 2, 3]
    assert rows(book.to_ask(0)) == []
    answer(book, 2)
    assert rows(book.to_ask(0)) == [], "in their order: what has been answered and waits takes room too"
    answer(book, 1)
    assert rows(book.ready(9)) == [1, 2]
    assert rows(book.to_ask(0)) == [4, 5]
    assert not book.is_full


def test_without_order_they_go_as_they_are_answered() -> None:
    book = filled(1, 2, 3, ordered=False)
    book.to_ask(0)
    answer(book, 3)
    assert book.has_ready
    assert rows(book.ready(9)) == [3]
    answer(book, 1)
    answer(book, 2)
    assert rows(book.ready(1)) == [1]
    assert rows(book.in_order()) == [2], "what has not gone is in flight, answered or not"
    assert rows(book.ready(9)) == [2]
    assert not book.has_ready


@pytest.mark.parametrize("ordered", [True, False])
def test_what_comes_behind_a_watermark_goes_behind_it(ordered: bool) -> None:
    book = filled(1, 2, ordered=ordered)
    book.to_ask(0)
    book.begin_hold()
    book.add(calls(3))
    book.to_ask(0)
    answer(book, 3)
    answer(book, 1)
    assert rows(book.ready(9)) == [1]
    assert not book.has_ready
    assert book.holds
    answer(book, 2)
    assert rows(book.ready(9)) == [2]
    assert not book.holds
    assert not book.has_ready, "the watermark first"
    book.end_hold()
    assert rows(book.ready(9)) == [3]


def test_nothing_in_flight_holds_nothing() -> None:
    book = filled()
    book.begin_hold()
    assert not book.holds
    book.end_hold()


def test_a_call_that_is_not_answered_in_time_is_told_once_and_its_answer_is_nobodys() -> None:
    book = filled(1, 2, timeout_ms=100)
    book.to_ask(0)
    assert book.wake_at_ms == 100
    answer(book, 1)
    assert rows(book.expired(99)) == []
    (late,) = book.expired(100)
    assert late.row == 2
    book.answer(late, None, TimeoutError())
    assert book.find(late.number, 1) is None
    assert book.expired(200) == []
    assert book.wake_at_ms is None


def test_another_attempt_comes_after_its_pause_and_only_its_answer_counts() -> None:
    book = filled(1, capacity=1, timeout_ms=1_000)
    (call,) = book.to_ask(0)
    book.add(calls(2))
    assert book.find(call.number, 1) is call
    book.ask_again(call, 50)
    assert book.wake_at_ms == 50
    assert rows(book.to_ask(49)) == [], "it keeps its room"
    assert rows(book.to_ask(50)) == [1]
    assert book.find(call.number, 1) is None
    assert book.find(call.number, 2) is call


def test_a_pause_that_outlasts_the_call_is_none() -> None:
    book = filled(1, timeout_ms=100)
    (call,) = book.to_ask(0)
    book.ask_again(call, 150)
    assert book.expired(100) == [call]
    book.answer(call, None, TimeoutError())
    assert book.to_ask(150) == []


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_each_goes_once_and_none_across_a_watermark(ordered: bool, seed: int) -> None:
    pick = random.Random(seed)
    book = CallsInFlight(4, ordered, None)
    came = gone = 0
    sent: list[int] = []
    marks: list[int] = []
    is_held = False
    while came < 60 or len(book):
        if came < 60 and not book.is_full:
            count = pick.randrange(1, 4)
            book.add(calls(*range(came, came + count)))
            came += count
        if not is_held and pick.random() < 0.3:
            book.begin_hold()
            is_held = True
            marks.append(came)
        book.to_ask(0)
        for call in book.in_order():
            if call.attempt and not call.is_answered and pick.random() < 0.4:
                book.answer(call, None, None)
        sent += rows(book.ready(pick.randrange(1, 5)))
        gone = len(sent)
        if is_held and not book.holds:
            assert gone == marks[-1], "all that came before it has gone, and nothing else"
            book.end_hold()
            is_held = False
    assert sorted(sent) == list(range(came))
    assert not ordered or sent == sorted(sent)
