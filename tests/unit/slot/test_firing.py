"""A watermark on its way through a chain, and what the task does between two pieces of what it fires."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts.batch_size import GOAL_MS, RECORDS_FIRST, RECORDS_MAX, BatchSize
from onceflow.runtime.exchange.channel import CAPACITY_BYTES, LocalChannel
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.exchange.record_writer import ForwardWriter
from onceflow.runtime.graph.job_graph import Chain, InChain, OperatorNode, ToEdge
from onceflow.runtime.operators.operator import MAIN, FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Records,
    Watermark,
)
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX, Firing, TimeElement, queued_behind
from onceflow.runtime.slot.task import OperatorTask
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot
from onceflow.runtime.testing.firing_mutants import out_before_it_has_fired
from onceflow.runtime.testing.mutation import Mutant, mutated

SCHEMA = pa.schema([("ts", pa.int64())])


def rows(*times: int) -> Records:
    return Records(pa.record_batch([pa.array(times, pa.int64())], schema=SCHEMA), np.array(times, np.int64))


def shown(element: Element) -> object:
    return element.batch.column(0).to_pylist() if isinstance(element, Records) else element


class Window:
    """Keeps rows until the watermark has reached them; then sends them on, a hundred times later."""

    def __init__(self) -> None:
        self.open_rows: list[int] = []
        self.watermark_ms = WATERMARK_MIN_MS
        self.asked: list[int] = []
        self.log: list[str] = []
        self.on_fire: Callable[[int], None] = lambda fired: None

    def open(self, context: OperatorContext, out: Output) -> None:
        self.out = out

    def restore(self, states: Sequence[RestoredState]) -> None: ...

    def on_records(self, records: Records) -> None:
        self.log.append("records")
        self.open_rows += records.batch.column(0).to_pylist()

    def on_watermark(self, time_ms: int) -> None:
        self.watermark_ms = time_ms

    def fire(self, rows_max: int) -> int:
        self.asked.append(rows_max)
        due = sorted(at for at in self.open_rows if at <= self.watermark_ms)[:rows_max]
        for at in due:
            self.open_rows.remove(at)
        if due:
            self.log.append("piece")
            self.out.emit(rows(*(100 * at for at in due)))
        self.on_fire(len(due))
        return len(due)

    def snapshot(self) -> FrozenState:
        return FrozenState(range(4), {}, {"open": sorted(self.open_rows)})

    def close(self) -> None: ...


class Alarm(Window):
    """Sends what has come by then when the clock shows it."""

    @property
    def wake_at_ms(self) -> int | None:
        return min(self.open_rows, default=None)

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        due = sorted(at for at in self.open_rows if at <= now_ms)[:rows_max]
        for at in due:
            self.open_rows.remove(at)
        self.out.emit(rows(*due))
        return len(due)

    def on_watermark(self, time_ms: int) -> None:
        pass


@dataclass
class Bench:
    """A gate with two channels -> one or two windows -> an edge out."""

    kinds: Sequence[type[Window]] = (Window,)
    piece_rows_max: int = 2
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.inputs = [LocalChannel(), LocalChannel()]
        self.out = LocalChannel()
        self.windows = [kind() for kind in self.kinds]
        self.snapshots: list[TaskSnapshot] = []
        self.counters = TaskCounters()
        uids = [f"w{n}" for n in range(len(self.windows))]
        nodes = {}
        for n, uid in enumerate(uids):
            target = InChain(uids[n + 1]) if n + 1 < len(uids) else ToEdge(0)
            nodes[uid] = OperatorNode(uid, uid, Window, SCHEMA, {MAIN: [target]})
        operators = dict(zip(uids, self.windows, strict=True))
        chain: Any = Chain(0, "w0", nodes)
        edges: Any = {0: ForwardWriter(self.out)}
        body = ChainBody(chain, operators, {}, edges, self.counters, self.clock, self.piece_rows_max)
        for uid, window in operators.items():
            window.open(OperatorContext(uid, 0, 1, 4, range(4), self.clock), body.outlet(nodes[uid].outputs))
        gate = InputGate(self.inputs, Alignment(2))
        head = body.entrance("w0")
        whole = BatchSize(first=RECORDS_MAX)
        self.task = OperatorTask(gate, head, body, self.counters, self.snapshots.append, self.clock, whole)

    def send(self, *elements: Element, channel: int | None = None) -> None:
        for element in elements:
            for number, input in enumerate(self.inputs):
                if channel in (None, number):
                    input.send(element)

    def steps(self) -> Iterator[list[object]]:
        """What each step that does anything sends."""
        while self.task.step():
            yield self.taken()

    def taken(self) -> list[object]:
        taken = []
        while (element := self.out.receive()) is not None:
            taken.append(shown(element))
        return taken

    def sent(self) -> list[object]:
        return [element for step in self.steps() for element in step]

    def states(self) -> list[Any]:
        return [[state.meta["open"] for state in s.states.values()] for s in self.snapshots]


def test_little_fires_in_the_step_that_reads_the_watermark() -> None:
    bench = Bench(piece_rows_max=4)
    bench.send(rows(1, 2, 3), channel=0)
    bench.send(Watermark(5))
    assert [step for step in bench.steps() if step] == [[[100, 200, 300], Watermark(5)]]
    assert bench.counters.watermark_ms == 5


def test_the_watermark_goes_out_behind_the_last_piece() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3, 4, 5), channel=0)
    bench.send(Watermark(9))
    assert [step for step in bench.steps() if step] == [[[100, 200]], [[300, 400]], [[500], Watermark(9)]]


def test_a_barrier_between_two_pieces_is_taken_and_the_snapshot_has_what_has_not_fired() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3, 4, 5, 20), channel=0)
    bench.send(Watermark(9), Barrier(1), rows(30))
    bench.task.trigger(Barrier(1))
    assert bench.sent() == [[100, 200], Barrier(1), [300, 400], [500], Watermark(9)]
    assert bench.states() == [[[3, 4, 5, 20]]]


def many(value: int) -> Records:
    """A batch that a gate hands on alone, because it has many rows."""
    return rows(*[value] * 2_048)


def test_records_and_pieces_take_turns() -> None:
    bench = Bench(piece_rows_max=1)
    bench.send(rows(1, 2, 3, 4), channel=0)
    bench.send(Watermark(9))
    bench.send(*(many(20) for _ in range(6)), channel=0)
    bench.sent()
    assert bench.windows[0].log == ["records", "piece", *["piece", "records"] * 3, *["records"] * 3]


def test_while_a_barrier_is_on_its_way_no_piece_comes_before_what_there_is_to_read() -> None:
    bench = Bench(piece_rows_max=1)
    bench.send(rows(1, 2, 3, 4), channel=0)
    bench.send(Watermark(9))
    while bench.windows[0].log.count("piece") < 2:
        assert bench.task.step()
    bench.task.trigger(Barrier(1))
    bench.send(*(many(20) for _ in range(5)), Barrier(1), channel=0)
    bench.send(Barrier(1), channel=1)
    assert bench.sent() == [[100], [200], Barrier(1), [300], [400], Watermark(9)]
    assert bench.windows[0].log.count("records") == 6


def test_pieces_go_on_while_a_barrier_is_waited_for_and_there_is_nothing_to_read() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3, 4), channel=0)
    bench.send(Watermark(9))
    bench.task.trigger(Barrier(1))
    bench.send(Barrier(1), rows(20), channel=0)
    assert bench.sent() == [[100, 200], [300, 400], Watermark(9)]
    bench.send(Barrier(1), channel=1)
    assert bench.sent() == [Barrier(1)]
    assert bench.windows[0].open_rows == [20]


@pytest.mark.parametrize("ends", ["aborted", "snapshot"])
def test_after_a_barrier_or_its_abort_pieces_have_their_turn_again(ends: str) -> None:
    bench = Bench(piece_rows_max=1)
    bench.task.trigger(Barrier(3))
    if ends == "aborted":
        bench.task.abort_checkpoint(3)
    else:
        bench.send(Barrier(3))
        bench.sent()
    bench.send(rows(1, 2), channel=0)
    bench.send(Watermark(9))
    bench.send(many(20), many(20), channel=0)
    bench.sent()
    assert bench.windows[0].log == ["records", "piece", "piece", "records", "records"]


def test_two_windows_in_a_chain_fire_one_after_the_other_and_then_the_watermark_goes_out() -> None:
    bench = Bench([Window, Window])
    bench.send(rows(1, 2, 3), channel=0)
    bench.send(Watermark(250), Barrier(1))
    bench.task.trigger(Barrier(1))
    assert bench.sent() == [Barrier(1), [10_000], [20_000], Watermark(250)]
    assert bench.states() == [[[3], [100, 200]]]
    assert bench.windows[1].open_rows == [300]


def test_the_end_waits_for_the_last_piece_and_barriers_pass_before_it_and_after() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3, 4, 5), channel=0)
    bench.send(EndOfInput(), Barrier(1))
    bench.task.trigger(Barrier(1))
    sent = []
    for step in bench.steps():
        sent += step
        assert bench.task.is_drained == (EndOfInput() in sent)
    assert sent == [[100, 200], Barrier(1), [300, 400], [500], Watermark(WATERMARK_MAX_MS), EndOfInput()]
    assert bench.states() == [[[3, 4, 5]]]
    bench.send(Barrier(2, is_last=True))
    assert bench.sent() == [Barrier(2, is_last=True)]


def test_nothing_fires_after_the_last_barrier() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3, 4, 5), channel=0)
    bench.send(Watermark(9), Barrier(1, is_last=True))
    bench.task.trigger(Barrier(1, is_last=True))
    assert bench.sent() == [[100, 200], Barrier(1, is_last=True)]
    assert bench.windows[0].open_rows == [3, 4, 5]
    bench.send(Barrier(2, is_last=True))  # the one before was aborted
    assert bench.sent() == [Barrier(2, is_last=True)]
    assert bench.task.wake_at_ms is None


def test_nothing_fires_while_there_is_no_room() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3), channel=0)
    bench.send(Watermark(9))
    while not bench.windows[0].asked:
        assert bench.task.step()
    bench.taken()
    bench.out.send(rows(*range(CAPACITY_BYTES // 8)))
    assert not bench.task.step()
    bench.out.receive()
    assert bench.sent() == [[300], Watermark(9)]


def test_of_the_watermarks_behind_one_on_its_way_the_latest_counts() -> None:
    bench = Bench()
    bench.send(rows(1, 2, 3, 4, 5, 6, 7), channel=0)
    bench.task.trigger(Barrier(1))  # so that all is read before anything more fires
    for time_ms in (5, 6, 7):
        bench.send(Watermark(time_ms))
    bench.send(Idle())
    assert bench.sent() == [[100, 200], [300, 400], [500], Watermark(5), [600], [700], Watermark(7), Idle()]


WAITS: list[tuple[list[TimeElement], TimeElement, list[TimeElement]]] = [
    ([], Watermark(1), [Watermark(1)]),
    ([Watermark(1)], Watermark(2), [Watermark(2)]),
    ([Watermark(1), Idle()], Watermark(2), [Watermark(2)]),
    ([Watermark(1)], Idle(), [Watermark(1), Idle()]),
    ([Idle()], Idle(), [Idle()]),
    ([Watermark(1), Idle()], EndOfInput(), [Watermark(WATERMARK_MAX_MS), EndOfInput()]),
]


@pytest.mark.parametrize(("waiting", "element", "then"), WAITS)
def test_what_waits_is_never_more_than_two(
    waiting: list[TimeElement], element: TimeElement, then: list[TimeElement]
) -> None:
    assert queued_behind(waiting, element) == then


def firing(window: Window, clock: ManualClock, sent: list[TimeElement]) -> Firing:
    window.open(OperatorContext("w", 0, 1, 4, range(4), clock), LocalOutput())
    return Firing({"w": window}, lambda uid, time_ms: time_ms, sent.append, clock)


class LocalOutput:
    def emit(self, records: Records, tag: str = MAIN) -> None: ...


def test_what_fires_after_idleness_comes_behind_a_word_that_the_channel_counts_again() -> None:
    """Else what fires would meet a watermark that had gone on without this channel."""
    window, sent = Window(), list[Any]()
    its = firing(window, ManualClock(), sent)
    window.open_rows = [1, 2, 3]
    window.on_fire = lambda fired: sent.append(fired)
    for element in (Watermark(0), Idle(), Watermark(2)):
        its.take(element)
    assert sent == [0, Watermark(0), Idle(), Watermark(0), 2, 0, Watermark(2)]


def test_the_work_between_two_looks_at_the_barrier_is_bounded_however_much_is_due() -> None:
    window, clock, sent, pieces = Window(), ManualClock(), list[TimeElement](), list[int]()
    window.open_rows = list(range(100_000))
    window.fire = lambda rows_max: _count_down(window, rows_max)  # type: ignore[method-assign]
    its = firing(window, clock, sent)
    its.take(Watermark(100_000))
    left = 100_000
    while its.is_due:
        pieces.append(left - len(window.open_rows))
        left = len(window.open_rows)
        its.advance()
    assert max(pieces) <= PIECE_ROWS_MAX
    assert pieces[0] == RECORDS_FIRST, "small at first, since nobody knows yet how long it takes"
    assert sent == [Watermark(100_000)]


def test_pieces_become_small_when_what_is_behind_them_is_slow() -> None:
    window, clock, sent, took = Window(), ManualClock(), list[TimeElement](), list[float]()
    window.open_rows = list(range(20_000))

    def slow(rows_max: int) -> int:
        fired = _count_down(window, rows_max)
        clock.advance(fired * 0.05)
        return fired

    window.fire = slow  # type: ignore[method-assign]
    its = firing(window, clock, sent)
    its.take(Watermark(20_000))
    while its.is_due:
        before_ms = clock.monotonic_ms()
        its.advance()
        took.append(clock.monotonic_ms() - before_ms)
    assert max(took) <= 2 * GOAL_MS


def _count_down(window: Window, rows_max: int) -> int:
    fired = min(rows_max, len(window.open_rows))
    del window.open_rows[:fired]
    return fired


def test_the_clock_makes_something_due_without_input() -> None:
    bench = Bench([Alarm])
    bench.send(rows(50, 51, 52, 60), channel=0)
    assert bench.sent() == []
    assert bench.task.wake_at_ms == 50
    bench.clock.advance(55)
    assert [step for step in bench.steps()] == [[[50, 51]], [[52]]]
    assert bench.task.wake_at_ms == 60


def test_a_watermark_on_its_way_comes_before_the_clock_which_may_never_be_done() -> None:
    class Ever(Alarm):
        def on_clock(self, now_ms: int, rows_max: int) -> int:
            return rows_max

    bench = Bench([Ever, Window])
    bench.windows[1].open_rows = [1, 2, 3, 4, 5]
    bench.send(rows(0), channel=0)
    bench.send(Watermark(5))
    sent: list[object] = []
    while Watermark(5) not in sent:
        assert bench.task.step()
        sent += bench.taken()
    assert sent == [[100, 200], [300, 400], [500], Watermark(5)]


MUTANT = Mutant("the watermark goes out before it has fired", [(Firing, "_pass_on", out_before_it_has_fired)])


@pytest.mark.parametrize(
    "test",
    [
        test_the_watermark_goes_out_behind_the_last_piece,
        test_the_end_waits_for_the_last_piece_and_barriers_pass_before_it_and_after,
    ],
)
def test_the_mutant_that_sends_the_watermark_out_first_is_killed(test: Callable[[], None]) -> None:
    with mutated(MUTANT), pytest.raises(AssertionError):
        test()
