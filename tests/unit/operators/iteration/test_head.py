"""Where a loop's input and the rows that come round meet, and when the loop is over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.operators.iteration.head import IterationHead
from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.records import WATERMARK_MAX_MS, LoopToken, Records
from tests.unit.operators.iteration.test_back_edge import numbers, rows


class Sent:
    """An Output that keeps the numbers it gets."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def emit(self, records: Records, tag: str = "") -> None:
        assert records.event_time is None
        assert records.key_hash is None
        self.numbers += numbers(records) or []


class Loop:
    """A head by itself; what is between it and the tail is the test's."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.sent = Sent()
        self.head = IterationHead("loop")
        shared: dict[str, Any] = {}
        context = OperatorContext("loop", 0, 1, 8, range(8), self.clock, shared_objects=shared)
        self.head.open(context, self.sent)
        self.back: BackEdge = context.shared("loop loop", BackEdge)

    def turn(self) -> LoopToken | None:
        """What a task does when the head is to be woken: no more than one batch, then the token."""
        self.head.on_clock(self.clock.now_ms(), 100)
        return self.head.token()

    def round(self) -> LoopToken:
        """The next token, sent and brought back."""
        self.clock.advance(100)
        token = self.turn()
        assert token is not None
        self.back.returned = token
        self.turn()
        return token


def test_rows_of_the_input_and_rows_that_come_round_go_out_without_event_time() -> None:
    loop = Loop()
    loop.head.on_records(Records(pa.RecordBatch.from_pydict({"n": [1]}), np.zeros(1, np.int64)))
    assert loop.head.wake_at_ms is None
    loop.back.send(rows(2, 3))
    assert loop.head.wake_at_ms is not None
    assert loop.head.on_clock(0, 1) == 1
    assert loop.head.on_clock(0, 5) == 1
    assert loop.sent.numbers == [1, 2, 3]


def test_no_token_before_the_end_of_the_input_nor_before_rows_that_wait() -> None:
    loop = Loop()
    assert loop.turn() is None
    loop.head.on_watermark(1_000)
    assert loop.turn() is None
    loop.head.on_watermark(WATERMARK_MAX_MS)
    loop.back.send(rows(1))
    loop.back.send(rows(2))
    assert loop.turn() is None, "2 waits"
    assert loop.turn() == LoopToken("loop", 1, False)
    assert loop.turn() is None, "it is on its way"


def test_the_end_is_held_until_a_round_in_which_nobody_sent_a_row() -> None:
    loop = Loop()
    loop.head.on_watermark(WATERMARK_MAX_MS)
    assert not loop.round().is_quiet, "before the first token nothing is known"
    assert loop.head.holds_end
    loop.back.send(rows(1))
    loop.turn()
    assert not loop.round().is_quiet
    assert loop.head.holds_end
    assert loop.round().is_quiet
    assert not loop.head.holds_end
    assert loop.turn() is None
    assert loop.head.wake_at_ms is None


def test_rows_that_came_before_the_token_go_out_before_it_counts() -> None:
    loop = Loop()
    loop.head.on_watermark(WATERMARK_MAX_MS)
    loop.round()
    loop.clock.advance(100)
    token = loop.turn()
    assert token is not None
    assert token.is_quiet
    loop.back.send(rows(1))
    loop.back.returned = LoopToken("loop", token.round, False)
    loop.turn()
    assert loop.sent.numbers == [1]
    assert loop.back.returned is not None
    loop.turn()
    assert loop.head.holds_end
