"""Functions of drawn graphs, with every kind of state. What they send hangs on event time alone: they look at
what they keep when a timer says that all of it is there, or in the end."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    AggregateFunction,
    AggregatingState,
    BroadcastCtx,
    BroadcastState,
    CoGroup,
    Ctx,
    GroupWindow,
    InitializationContext,
    KeyedBroadcastProcess,
    KeyedCoProcess,
    KeyedProcess,
    ListState,
    MapState,
    OperatorListState,
    Process,
    ReducingState,
    Timer,
    UnionListState,
    ValueState,
    WindowBounds,
    WindowCtx,
    WindowProcess,
    WindowState,
)

END = 1_000_000
"""Later than all rows: a timer of this time fires when all is read. Rows of it are passed on as they are."""
WAIT = 5


@dataclass(frozen=True)
class Row:
    id: int
    key: str
    n: int
    ts: int


class Total(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + 3 * value

    def merge(self, accumulator_a: int, accumulator_b: int) -> int:
        return accumulator_a + accumulator_b

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Keep(KeyedProcess[str, Row, Row]):
    """Says of each time what was kept up to it, and in the end what was kept at all."""

    count = ValueState("count", int)
    rows = ListState("rows", Row)
    by_time = MapState("by_time", int, int)
    recent = MapState("recent", int, int, ttl=12)
    total = ReducingState("total", int, operator.add)
    thrice = AggregatingState("thrice", Total())
    objects = ValueState("objects", Counter, codec="pickle")

    def process(self, row: Row, ctx: Ctx) -> Iterator[Row]:
        if row.ts >= END:
            yield row
            return
        self.count.set(self.count.get(0) + 1)
        self.rows.add(row)
        self.by_time.put(row.ts, self.by_time.get(row.ts, 0) + row.n)
        self.recent.put(row.ts, self.recent.get(row.ts, 0) + row.n)
        self.total.add(row.n)
        self.thrice.add(row.n)
        objects = self.objects.get() or Counter()
        objects[row.id % 3] += 1
        self.objects.set(objects)
        ctx.timers.event_time(row.ts + WAIT)
        ctx.timers.event_time(END)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Row]:
        if fired.time < END:
            seen = [row for row in self.rows.get() if row.ts <= fired.time]
            n = sum(n for ts, n in self.by_time.items() if ts <= fired.time)
            recent = sum(n for ts, n in self.recent.items() if ts <= fired.time)
            yield Row(len(seen), ctx.key, n + 7 * recent, fired.time)
            for ts in [ts for ts in self.by_time.keys() if ts <= fired.time - 20]:  # noqa: SIM118 - a handle
                self.by_time.remove(ts)
            return
        objects = sum((1 + place) * n for place, n in (self.objects.get() or Counter()).items())
        yield Row(self.count.get(0), ctx.key, (self.total.get() or 0) + (self.thrice.get() or 0), END)
        yield Row(objects, ctx.key, sum(self.by_time.values()), END)


class Meet(KeyedCoProcess[str, Row, Row, Row]):
    """What both streams of a key have brought up to each time of the left one."""

    left = ListState("left", Row)
    right = MapState("right", int, int)

    def process_left(self, row: Row, ctx: Ctx) -> None:
        self.left.add(row)
        ctx.timers.event_time(row.ts + WAIT)

    def process_right(self, row: Row, ctx: Ctx) -> None:
        self.right.put(row.ts, self.right.get(row.ts, 0) + row.n)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Row]:
        mine = [row for row in self.left.get() if row.ts <= fired.time]
        theirs = sum(n for ts, n in self.right.items() if ts <= fired.time)
        yield Row(len(mine), ctx.key, theirs + sum(row.n for row in mine), fired.time)


class Judge(KeyedBroadcastProcess[str, Row, Row, Row]):
    """Each row with the sum of all rules up to a while after it."""

    rules = BroadcastState("rules", str, int)
    waiting = ListState("waiting", Row)

    def process(self, row: Row, ctx: Ctx) -> None:
        self.waiting.add(row)
        ctx.timers.event_time(row.ts + WAIT)

    def process_broadcast(self, rule: Row, ctx: BroadcastCtx) -> None:
        name = f"{rule.ts} {rule.id} {rule.key} {rule.n}"
        self.rules.put(name, self.rules.get(name, 0) + rule.n)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Row]:
        held = [row for row in self.waiting.get() if row.ts <= fired.time - WAIT]
        self.waiting.update([row for row in self.waiting.get() if row.ts > fired.time - WAIT])
        rules = sum(n for name, n in self.rules.items() if int(name.split()[0]) <= fired.time)
        for row in held:
            yield Row(row.id, row.key, row.n + 100 * rules, fired.time)


class Held(Process[Row, Row]):
    """Holds the rows of its subtask until the end, in both kinds of lists. Of the united one each subtask
    takes at a restart what is its own by number. One without a split is at its end before others: it forgets
    what it has sent."""

    dealt = OperatorListState("dealt", Row)
    united = UnionListState("united", Row)

    def initialize_state(self, ctx: InitializationContext) -> None:
        mine = [row for row in self.united.get() if row.id % ctx.parallelism == ctx.subtask]
        self.united.update(mine)

    def process(self, row: Row, ctx: Ctx) -> None:
        (self.dealt if row.n % 2 else self.united).add(row)

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Row]:
        if ctx.is_end_of_input:
            for rows in (self.dealt, self.united):
                yield from rows.get()
                rows.clear()


class Windows(WindowProcess[str, Row, Row]):
    """How often each window has fired, and the sum of all windows of the key in the end."""

    times = WindowState("times", int)
    total = ReducingState("total", int, operator.add)

    def process(
        self, key: str, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx
    ) -> Iterator[Row]:
        assert window is not None
        times = self.times.get(0) + 1
        self.times.set(times)
        self.total.add(len(rows))
        total = self.total.get()
        assert total is not None
        yield Row(1_000 * times + total, key, sum(row.n for row in rows), window.end - 1)


class Both(CoGroup[Row, Row, Row]):
    """The rows of both sides of a window."""

    def group(self, left: list[Row], right: list[Row], window: GroupWindow) -> Iterator[Row]:
        key = [*left, *right][0].key
        yield Row(10 * len(left) + len(right), key, sum(row.n for row in [*left, *right]), window.end - 1)
