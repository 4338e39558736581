"""ProcessOperator: errors of the user's code, and checkpoints of another program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.errors import OnceflowError, UserFunctionError
from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.records import Origin
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True)
class Reading:
    sensor: str
    celsius: float


Act = Callable[[Any, Any, Ctx], Any]


class Acts(KeyedProcess[str, Reading, Reading]):
    """Does what a test says."""

    last = ValueState("last", float)
    odd = SideOutput("odd", Reading)

    def __init__(self, act: Act, on_timer: Act = lambda self, fired, ctx: None) -> None:
        self.act = act
        self.timer_act = on_timer

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Reading]:
        return self.act(self, record, ctx)  # type: ignore[no-any-return]

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Reading]:
        return self.timer_act(self, fired, ctx)  # type: ignore[no-any-return]


def harness(process: Any, states: Any = None, has_event_time: bool = True, **options: Any) -> OperatorHarness:
    schema = arrow_schema(Reading)
    config = ProcessConfig(
        "alert",
        process,
        ("sensor",),
        schema,
        RecordWriter(schema),
        RecordReader(Reading),
        has_event_time,
        **options,
    )
    return OperatorHarness(config.create, ["sensor"], states=states)


def push(to: OperatorHarness, *celsius: float) -> None:
    batch = pa.record_batch({"sensor": ["s"] * len(celsius), "celsius": list(celsius)}, arrow_schema(Reading))
    rows = len(celsius)
    origin = Origin(
        ("t-0",), pa.array([0] * rows, pa.uint16()).to_numpy(), pa.array(range(70, 70 + rows)).to_numpy()
    )
    to.push(batch, list(range(10, 10 + rows)), origin)


def fails_in_the_middle(self: Any, record: Reading, ctx: Ctx) -> Iterator[Reading]:
    yield record
    if record.celsius > 90:
        raise ValueError("too hot")


def test_an_error_names_operator_method_record_and_line() -> None:
    with pytest.raises(UserFunctionError) as caught:
        push(harness(Acts(fails_in_the_middle)), 1, 99)
    message = str(caught.value)
    assert "operator 'alert': Acts.process failed on the record in t-0 at offset 71, Reading(" in message
    assert f"test_process.py:{fails_in_the_middle.__code__.co_firstlineno + 3})" in message
    assert message.endswith("ValueError: too hot")


def set_timer(self: Any, record: Reading, ctx: Ctx) -> None:
    ctx.timers.event_time(50)


MISTAKES: list[tuple[Act, str]] = [
    (
        lambda self, r, ctx: [1],
        r"Acts made a wrong record for the record in t-0 at offset 70.*a int was returned",
    ),
    (lambda self, r, ctx: 5, "TypeError: 'int' object is not iterable"),
    (
        lambda self, r, ctx: ctx.emit(self.odd, 3),
        "Acts made a wrong record for side output 'odd': a int was returned",
    ),
    (
        lambda self, r, ctx: ctx.emit(SideOutput("x", Reading), r),
        "side output 'x' is not declared: write `x = SideOutput",
    ),
    (lambda self, r, ctx: self.last.set("x"), "TypeError: state 'last' is declared float but is set to 'x'"),
    (
        lambda self, r, ctx: ctx.timers.event_time("1 s"),
        "a timer's time is an int in ms since the epoch, not '1 s'",
    ),
    (lambda self, r, ctx: ctx.timers.event_time(1 << 63), "does not fit 64 bits"),
]


@pytest.mark.parametrize(("act", "sentence"), MISTAKES)
def test_mistakes_have_sentences(act: Act, sentence: str) -> None:
    with pytest.raises(UserFunctionError, match=sentence):
        push(harness(Acts(act)), 1)


def test_an_error_of_a_timer_names_key_and_time() -> None:
    process = Acts(set_timer, on_timer=lambda self, fired, ctx: 1 // 0)
    alert = harness(process)
    push(alert, 1)
    with pytest.raises(
        UserFunctionError, match=r"Acts.on_timer failed on the timer at 50 of key 's' .*ZeroDivisionError"
    ):
        alert.advance(60)


def test_a_timer_needs_event_time() -> None:
    with pytest.raises(UserFunctionError, match="needs event time: pass watermarks= to the source"):
        push(harness(Acts(set_timer), has_event_time=False), 1)


def test_timers_that_never_end_are_found() -> None:
    ever = Acts(set_timer, on_timer=lambda self, fired, ctx: ctx.timers.event_time(fired.time + 1))
    alert = harness(ever, chained_timers_max=1_000)
    push(alert, 1)
    with pytest.raises(
        UserFunctionError, match=r"registers timer after timer up to the watermark .* without end"
    ):
        alert.finish()


def test_the_end_of_the_input_can_be_told() -> None:
    def again(self: Any, fired: Timer, ctx: Ctx) -> None:
        if not ctx.is_end_of_input:
            ctx.timers.event_time(fired.time + 10)

    alert = harness(Acts(set_timer, on_timer=again))
    push(alert, 1)
    alert.advance(65)
    alert.finish()
    (state,) = alert.snapshot()
    [kept] = state.batches("keys")
    assert kept.column("timers").to_pylist() == [[]]  # few empty keys are not worth the sweep


def test_a_new_state_begins_empty() -> None:
    class More(Acts):
        count = ValueState("count", int)

    before = harness(Acts(lambda self, r, ctx: self.last.set(r.celsius)))
    push(before, 1.5)

    def read(self: Any, record: Reading, ctx: Ctx) -> Iterator[Reading]:
        assert self.count.get() is None
        yield Reading(ctx.key, self.last.get())

    after = harness(More(read), before.snapshot())
    push(after, 7)
    assert after.rows() == [{"sensor": "s", "celsius": 1.5}]


def test_the_first_state_of_a_process_that_had_none_begins_empty() -> None:
    class Plain(KeyedProcess[str, Reading, Reading]):
        def process(self, record: Reading, ctx: Ctx, /) -> Iterator[Reading]:
            ctx.timers.event_time(60)
            yield record

    before = harness(Plain())
    push(before, 1.5)
    after = harness(
        Acts(lambda self, r, ctx: self.last.set((self.last.get() or 0) + r.celsius)), before.snapshot()
    )
    push(after, 7)
    [row] = after.subtasks[0].snapshot().tables["keys"].piece(0, 1).to_pylist()
    assert (row["state"]["last"], row["timers"]) == (7, [60])


def test_our_own_errors_are_not_wrapped() -> None:
    def stop(self: Any, record: Reading, ctx: Ctx) -> None:
        raise OnceflowError("stop")

    with pytest.raises(OnceflowError, match=r"^stop$"):
        push(harness(Acts(stop)), 1)
