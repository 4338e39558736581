"""A call of the user's function that does not come back is found and named; what gets on is left alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.map_batches import MapBatches
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.operators.stateless import FlatMapRecords, call_each
from onceflow.runtime.operators.windows.reduce import RollingReduce
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Origin, Records
from onceflow.runtime.slot.call_watch import _LOOPS, CallWatch, UserCall, find_user_call, stack_of
from onceflow.runtime.slot.failure import hanging
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass
class Event:
    user: str
    amount: int


SCHEMA = arrow_schema(Event)
BATCH = pa.record_batch({"user": ["a", "a", "b"], "amount": [1, 2, 3]}, SCHEMA)
ORIGIN = Origin(("in-3",), np.zeros(3, np.uint16), np.array([7, 8, 9], np.int64))
RECORDS = Records(BATCH, np.array([10, 20, 30], np.int64), None, ORIGIN)
READER = RecordReader(Event)


def looks() -> tuple[list[UserCall | None], Callable[[], None]]:
    """What is found on the stack each time that the second of them is called."""
    found: list[UserCall | None] = []
    return found, lambda: found.append(find_user_call(sys._getframe()))


def test_a_call_on_a_record_is_named_with_its_origin() -> None:
    found, look = looks()

    def score(event: Event) -> Event:
        look()
        return event

    call_each("score", score, READER.read(BATCH), RECORDS)
    assert [call.record for call in found if call] == [f"in-3 at offset {n}" for n in (7, 8, 9)]
    second = found[1]
    assert second is not None
    assert second.describe(60_400) == (
        "operator 'score': test_a_call_on_a_record_is_named_with_its_origin.score has been in one call for "
        "60 s, on the record in in-3 at offset 8, Event(user='a', amount=2)"
    )
    assert len({call.fingerprint for call in found if call}) == 3


def test_a_call_of_a_generator_is_named_with_the_record_that_it_is_at() -> None:
    found, look = looks()

    def explode(event: Event) -> Iterator[Event]:
        yield event
        look()
        yield event

    FlatMapRecords("explode", explode, READER, RecordWriter(SCHEMA))(RECORDS)
    assert [(call.uid, call.row, call.record) for call in found if call] == [
        ("explode", row, f"in-3 at offset {7 + row}") for row in range(3)
    ]


def test_a_call_on_a_batch_is_named_and_is_the_same_with_another_batch() -> None:
    found, look = looks()

    def predict(batch: pa.RecordBatch) -> pa.RecordBatch:
        look()
        return batch

    transform = MapBatches("predict", predict, SCHEMA, False, None)
    transform(RECORDS)
    transform(RECORDS.slice(0, 2))
    first, second = found
    assert first is not None
    assert second is not None
    assert (first.uid, first.place) == ("predict", "a batch of 3 records")
    assert first.fingerprint == second.fingerprint


class Watched(AggregateFunction[Event, list[int], int]):
    """Looks from each of its methods."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Event, accumulator: list[int]) -> list[int]:
        self.look()
        return [*accumulator, value.amount]

    def merge(self, accumulator_a: list[int], accumulator_b: list[int]) -> list[int]:
        self.look()
        return accumulator_a + accumulator_b

    def get_result(self, accumulator: list[int]) -> int:
        self.look()
        return sum(accumulator)


def test_calls_of_an_aggregate_are_named() -> None:
    found, look = looks()
    config = WindowAggregate(
        "sums", ("user",), sliding(20, 10), {"sum": Watched(look)}, SCHEMA, record_type=Event
    )
    harness = OperatorHarness(config.create, ["user"])
    harness.push(BATCH, [10, 20, 30], ORIGIN)
    harness.finish()
    calls = [call for call in found if call is not None]
    assert len(calls) == len(found)
    assert {call.function for call in calls} == {"Watched.add", "Watched.merge", "Watched.get_result"}
    assert {call.uid for call in calls} == {"sums"}
    adds = [call.record for call in calls if call.function == "Watched.add"]
    assert adds == [f"in-3 at offset {n}" for n in (7, 8, 9)]


def test_a_call_of_a_reduce_is_named() -> None:
    found, look = looks()

    def more(so_far: Event, event: Event) -> Event:
        look()
        return event

    harness = OperatorHarness(RollingReduce("more", ("user",), more, SCHEMA, Event).create, ["user"])
    harness.push(BATCH, [10, 20, 30], ORIGIN)
    assert [(call.uid, call.record) for call in found if call] == [("more", "in-3 at offset 8")]


class Alarm(KeyedProcess[str, Event, Event]):
    """Looks from both of its methods."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.look = look

    def process(self, record: Event, ctx: Ctx) -> None:
        self.look()
        ctx.timers.event_time(100 + record.amount)

    def on_timer(self, fired: Timer, ctx: Ctx) -> None:
        self.look()


def test_calls_of_a_keyed_process_are_named() -> None:
    found, look = looks()
    config = ProcessConfig(
        "alarm", Alarm(look), ("user",), SCHEMA, RecordWriter(SCHEMA), READER, has_event_time=True
    )
    harness = OperatorHarness(config.create, ["user"])
    harness.push(BATCH, [10, 20, 30], ORIGIN)
    harness.advance(1_000)
    calls = [call for call in found if call is not None]
    assert [call.record for call in calls[:3]] == [f"in-3 at offset {n}" for n in (7, 8, 9)]
    assert [call.place for call in calls[3:]] == [
        "the timer at 101 of key 'a'",
        "the timer at 102 of key 'a'",
        "the timer at 103 of key 'b'",
    ]
    assert {call.uid for call in calls} == {"alarm"}


def test_a_call_that_lasts_is_timed_by_looks_and_another_row_is_another_call() -> None:
    over = threading.Event()
    reached: list[threading.Event] = [threading.Event() for _ in range(3)]
    goes_on: list[threading.Event] = [threading.Event() for _ in range(3)]

    def busy(event: Event) -> Event:
        reached[event.amount - 1].set()
        while not goes_on[event.amount - 1].is_set():  # holds its thread as `while True: pass` does
            pass
        return event

    def slot() -> None:
        call_each("busy", busy, READER.read(BATCH), RECORDS)
        over.set()

    thread = threading.Thread(target=slot, daemon=True)
    thread.start()
    assert thread.ident is not None
    watch = CallWatch(stack_of(thread.ident), pause_ms=1_000)
    assert reached[0].wait(60)
    assert watch.look(steps=5, now_ms=0) is None, "it may have taken a step"
    first = watch.look(5, 1_000)
    assert first is not None
    assert (first.record, watch.lasted_ms) == ("in-3 at offset 7", 0)
    watch.look(5, 2_000)
    assert watch.lasted_ms == 1_000
    watch.look(5, 100_000)
    assert watch.lasted_ms == 3_000, "a process that was frozen has not looked"
    goes_on[0].set()
    assert reached[1].wait(60)
    second = watch.look(5, 101_000)
    assert second is not None
    assert (second.record, watch.lasted_ms) == ("in-3 at offset 8", 0), "the batch gets on"
    assert watch.look(6, 102_000) is None, "the slot gets on"
    for event in goes_on:
        event.set()
    assert over.wait(60)
    thread.join(10)
    watch.look(7, 103_000)
    assert watch.look(7, 104_000) is None


@pytest.mark.parametrize("can_end", [True, False])
def test_a_thread_that_hangs_is_fatal_and_a_process_is_tried_once_more(can_end: bool) -> None:
    call = UserCall("score", "score", "the record in-3 at offset 8", 1, "in-3 at offset 8")
    failed = hanging(4, call, 30_000, can_end)
    assert failed.is_fatal is not can_end
    assert failed.fingerprints == (call.fingerprint,)
    assert "score has been in one call for 30 s, on the record in-3 at offset 8" in failed.reason
    assert "slot_timeout" in failed.reason


def test_each_name_that_is_looked_up_in_a_loop_is_one_of_its_variables() -> None:
    """A variable that gets another name would else be looked up in vain, and its calls be found no more."""
    for loop, describe in _LOOPS.items():
        looked_up = {
            text for text in describe.__code__.co_consts if isinstance(text, str) and text.isidentifier()
        }
        assert looked_up
        assert looked_up <= {*loop.co_varnames, *loop.co_cellvars, *loop.co_freevars}, loop.co_qualname
