"""What a snapshot records as fired was sent: also of a snapshot that falls between two pieces of firing.

Method: each piece of output is held, a snapshot is taken just before it goes out, and a new operator is
restored from it. What was sent before and what the new one sends together are every result, once; and a
record for what was not sent yet is on time.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest

from onceflow.runtime.operators.aggregates import count
from onceflow.runtime.operators.keyed_process import KeyedProcess
from onceflow.runtime.operators.operator import MAIN, Operator, Output, RestoredState
from onceflow.runtime.operators.pane_operator import PaneOperator
from onceflow.runtime.operators.process import ProcessConfig, ProcessOperator
from onceflow.runtime.operators.sliding import Sliding, sliding
from onceflow.runtime.operators.tumbling import Tumbling, tumbling
from onceflow.runtime.operators.window import WindowAggregate
from onceflow.runtime.operators.window_operator import EMIT_ROWS_MAX, WindowOperator
from onceflow.runtime.records import Records
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.testing.harness import OperatorHarness, stored
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.types import RecordReader, record_class

SCHEMA = pa.schema([pa.field("key", pa.int64(), nullable=False)])


class SnapshotsBetweenPieces:
    """An output in front of another: takes a snapshot before each piece is sent."""

    def __init__(self, operator: Operator, out: Output) -> None:
        self._operator = operator
        self._out = out
        self.taken: list[tuple[int, RestoredState]] = []
        """How many pieces were sent before, and the state."""

    def emit(self, records: Records, tag: str = MAIN) -> None:
        state = self._operator.snapshot()
        assert state is not None
        self.taken.append((len(self.taken), stored(state)))
        self._out.emit(records, tag)


def windows(window: Tumbling | Sliding) -> WindowAggregate:
    return WindowAggregate("w", ("key",), window, {"n": count()}, SCHEMA)


def rows(keys: Iterable[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(list(keys), pa.int64())], schema=SCHEMA)


def results(emitted: Iterable[tuple[str, Records]]) -> list[tuple[int, int, int]]:
    """(key, start of the window, count)."""
    columns = ("key", "window_start", "n")
    return [
        row
        for _, records in emitted
        for row in zip(*(records.batch.column(name).to_pylist() for name in columns), strict=True)
    ]


def check_between_pieces(window: Tumbling | Sliding, keys: int, starts: list[int], watermark_ms: int) -> None:
    """A record for each key and each of these times; then time goes on to the watermark, in pieces."""
    whole = OperatorHarness(windows(window).create, ["key"])
    [operator] = whole.subtasks
    pieces = SnapshotsBetweenPieces(operator, whole.out)
    operator._out = pieces  # type: ignore[attr-defined]
    for start in starts:
        whole.push(rows(range(keys)), [start] * keys)
    whole.advance(watermark_ms)
    expected = {(key, start) for key, start, _ in results(whole.out.emitted)}
    assert len(pieces.taken) > 1
    for sent, state in pieces.taken:
        before = {(key, start) for key, start, _ in results(whole.out.emitted[:sent])}
        again = OperatorHarness(windows(window).create, ["key"], states=[state])
        waiting = sorted(key for key in range(keys) if (key, starts[-1]) not in before)
        again.push(rows(waiting), [starts[-1]] * len(waiting))
        assert again.late_rows == 0, "what is not sent yet is not late"
        again.advance(watermark_ms)
        after = results(again.out.emitted)
        assert {(key, start) for key, start, _ in after} == expected - before
        assert len(after) == len(expected) - len(before)
        assert {n for _, start, n in after if start == starts[-1]} == {2}


TUMBLING = (tumbling("10 s"), EMIT_ROWS_MAX + 5, [0], 9_999)
CATCHING_UP = (tumbling("10 s"), EMIT_ROWS_MAX // 2 + 5, [0, 10_000, 20_000], 40_000)
SLIDING = (sliding("10 s", "5 s"), 3, [0], 14_999)


@pytest.mark.parametrize("case", [TUMBLING, CATCHING_UP, SLIDING], ids=["one window", "several", "sliding"])
def test_a_snapshot_between_two_pieces_of_firing_loses_and_doubles_nothing(case) -> None:
    check_between_pieces(*case)


def _window_recorded_early(self: WindowOperator, last_start: int, first_start: int) -> None:
    self._lateness.watermark_ms = last_start + self._window.size_ms - 1
    _fire_windows(self, last_start, first_start)


def _panes_recorded_early(self: PaneOperator, time_ms: int, end: int) -> None:
    self._lateness.watermark_ms = time_ms
    _fire_panes(self, time_ms, end)


_fire_windows, _fire_panes = WindowOperator._fire_until, PaneOperator._fire_until

RECORDED_EARLY = Mutant(
    "windows recorded as fired before they are",
    [
        (WindowOperator, "_fire_until", _window_recorded_early),
        (PaneOperator, "_fire_until", _panes_recorded_early),
    ],
)


@pytest.mark.parametrize("case", [TUMBLING, SLIDING], ids=["tumbling", "sliding"])
def test_the_mutant_that_records_first_and_fires_then_is_killed(case) -> None:
    with mutated(RECORDED_EARLY), pytest.raises(AssertionError):
        check_between_pieces(*case)


class Reminder(KeyedProcess[int, object, object]):
    """A record for each timer."""

    seen = ValueState("seen", int)

    def process(self, record, ctx):
        self.seen.set(1)
        ctx.timers.event_time(ctx.event_time + 10)

    def on_timer(self, fired, ctx):
        yield record_class(SCHEMA)(ctx.key)


def test_a_keyed_process_records_the_watermark_when_its_timers_have_fired() -> None:
    record_type = record_class(SCHEMA)
    made = pa.schema([("key", pa.int64())])
    config = ProcessConfig("p", Reminder(), ("key",), SCHEMA, made, RecordReader(record_type), True)
    whole = OperatorHarness(config.create, ["key"])
    [operator] = whole.subtasks
    assert isinstance(operator, ProcessOperator)
    pieces = SnapshotsBetweenPieces(operator, whole.out)
    operator._out = pieces
    whole.push(rows(range(3)), [0, 5, 50])
    whole.advance(4)
    whole.advance(20)
    [(_, state)] = pieces.taken
    assert state.meta["watermark"] == 4
    [after] = whole.snapshot()
    assert after.meta["watermark"] == 20
