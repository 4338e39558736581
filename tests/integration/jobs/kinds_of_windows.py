"""Windows, joins and a loop over two topics of events, those kinds of them that are named.

onceflow run kinds_of_windows.py ... -- SERVERS LEFT_TOPIC RIGHT_TOPIC ROWS_TOPIC TABLE_TOPIC KIND ...

Rows go to ROWS_TOPIC. Kinds that send changes write to TABLE_TOPIC by key, as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from onceflow import (
    BroadcastCtx,
    BroadcastState,
    CoFlatMap,
    CoGroup,
    Ctx,
    GroupWindow,
    Job,
    KeyedBroadcastProcess,
    KeyedCoProcess,
    ListState,
    OperatorListState,
    Process,
    Timer,
    Trigger,
    TriggerCtx,
    TriggerResult,
    ValueState,
    WatermarkStrategy,
    WindowBounds,
    WindowCtx,
    WindowProcess,
    WindowState,
    at_watermark,
    col,
    count,
    count_window,
    cumulative,
    delta,
    every,
    every_processing_time,
    every_rows,
    evict_count,
    global_window,
    max_,
    processing_time,
    session,
    sliding,
    sum_,
    tumbling,
)
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

RATE = "700/s"
SIZE_MS, GAP_MS, WITHIN_MS = 100, 60, 50
"""The length of windows (sliding ones are three times as long), of sessions, of interval joins."""
SHORT_GAP_MS = 20
"""The gap of sessions in which the rows of both topics are."""
FEW = 20
"""One row of so many is joined with all of its key that ever come, or is a rule for all keys."""
END_MS = 1 << 50
"""No event comes as late: a timer for then fires at the end of the input."""


@dataclass(frozen=True)
class Event:
    key: int
    n: int
    ts: int


@dataclass(frozen=True)
class Rider:
    key: int
    n: int
    left: int
    rounds: int


@dataclass(frozen=True)
class Found:
    key: int
    a: int
    b: int
    c: int


class ThirdRows(Trigger[Event]):
    """Fires with each third row, and forgets the three."""

    seen = ValueState("seen", int)

    def on_element(
        self, element: Event, timestamp: int | None, window: WindowBounds, ctx: TriggerCtx
    ) -> TriggerResult:
        seen = (self.seen.get() or 0) + 1
        self.seen.set(seen % 3)
        return TriggerResult.CONTINUE if seen < 3 else TriggerResult.FIRE_AND_PURGE


class Whole(WindowProcess[int, Event, Found]):
    """The rows of a window so far; `c` is -1 if its state is not that of the firings before."""

    fired = WindowState("fired", int)

    def process(
        self, key: int, window: WindowBounds | None, events: list[Event], ctx: WindowCtx
    ) -> Iterator[Found]:
        assert window is not None
        fired = self.fired.get(0)
        self.fired.set(fired + 1)
        is_next = 3 * fired <= len(events) <= 3 * (fired + 1)
        yield Found(key, window.start, len(events), sum(event.n for event in events) if is_next else -1)


class OfBoth(KeyedCoProcess[int, Event, Event, Found]):
    """At the end, how many rows of a key there were on both sides, and by how much the left ones are more."""

    left = ListState("left", int)
    right = ListState("right", int)

    def process_left(self, event: Event, ctx: Ctx) -> None:
        self.left.add(event.n)
        ctx.timers.event_time(END_MS)

    def process_right(self, event: Event, ctx: Ctx) -> None:
        self.right.add(event.n)
        ctx.timers.event_time(END_MS)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Found]:
        left, right = self.left.get(), self.right.get()
        yield Found(ctx.key, 0, len(left) + len(right), sum(left) - sum(right))


class Ruled(KeyedBroadcastProcess[int, Event, Event, Found]):
    """At the end, each key's rows, and the rules that its subtask has."""

    rules = BroadcastState("rules", int, int)
    rows = ValueState("rows", int)

    def process(self, event: Event, ctx: Ctx) -> None:
        self.rows.set(self.rows.get(0) + 1)
        ctx.timers.event_time(END_MS)

    def process_broadcast(self, rule: Event, ctx: BroadcastCtx) -> None:
        self.rules.put(rule.n, rule.key)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Found]:
        rules = dict(self.rules.items())
        yield Found(ctx.key, self.rows.get(0), len(rules), sum(n * key for n, key in rules.items()))


class OneOfTwo(CoFlatMap[Event, Event, Found]):
    """Each row once, with its side."""

    def flat_map_left(self, event: Event) -> Iterator[Found]:
        yield Found(event.key, event.n, 1, 0)

    def flat_map_right(self, event: Event) -> Iterator[Found]:
        yield Found(event.key, event.n, 2, 0)


class Held(Process[Event, Found]):
    """Holds each event until the watermark has passed it."""

    held = OperatorListState("held", Event)

    def process(self, event: Event, ctx: Ctx) -> None:
        self.held.add(event)

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Found]:
        events = self.held.get()
        self.held.clear()
        for event in events:
            if event.ts <= watermark:
                yield Found(event.key, event.n, 0, 0)
            else:
                self.held.add(event)


class Compared(CoGroup[Event, Event, Found]):
    def group(self, left: list[Event], right: list[Event], window: GroupWindow) -> Iterator[Found]:
        apart = sum(event.n for event in left) - sum(event.n for event in right)
        yield Found(window.key, window.start, len(left) - len(right), apart)


def last_ones(key: int, window: WindowBounds, events: list[Event]) -> Iterator[Found]:
    yield Found(key, window.start, len(events), sum(event.n for event in events))


def once_more(rider: Rider) -> Rider:
    return Rider(rider.key, rider.n, rider.left - 1, rider.rounds + 1)


def latest(so_far: Rider, rider: Rider) -> Rider:
    return rider


def go_round(riders: Any) -> tuple[Any, Any]:
    place = ((col("n") * 7 + col("rounds") * 3) % 97).alias("place")
    turned = riders.key_by(place).reduce(latest, uid="place").map(once_more)
    return turned.filter(col("left") > 0), turned.filter(col("left") <= 0)


class Inputs:
    """The topics as streams, each read only if a kind asks for it."""

    def __init__(self, job: Job, servers: str, left: str, right: str) -> None:
        self._job, self._servers, self._topics = job, servers, {"left": left, "right": right}

    def _read(self, topic: str, uid: str, slack: str | None) -> Any:
        times = slack and WatermarkStrategy.bounded_out_of_orderness(slack, event_time="ts")
        source = KafkaSource(
            bootstrap_servers=self._servers, topics=[self._topics[topic]], value=Json(Event), until="latest"
        )
        return self._job.source(source, watermarks=times or None, uid=uid, rate_limit=RATE)

    @cached_property
    def lefts(self) -> Any:
        return self._read("left", "left", "20 ms")

    @cached_property
    def rights(self) -> Any:
        return self._read("right", "right", "20 ms")

    @cached_property
    def left(self) -> Any:
        return self.lefts.key_by("key")

    @cached_property
    def right(self) -> Any:
        return self.rights.key_by("key")

    @cached_property
    def tardy(self) -> Any:
        """The left ones, many of them late."""
        return self._read("left", "tardy", "0 ms").key_by("key")

    @cached_property
    def timeless(self) -> Any:
        return self._read("left", "timeless", None)


def totals(windows: Any, uid: str, at: str | None = "window_start") -> Any:
    """`a`: the column `at`, or the highest number."""
    found = windows.aggregate(b=count(), c=sum_("n"), high=max_("n"), uid=uid)
    return found.select("key", "b", "c", a=col(at or "high"))


def pairs(joined: Any) -> Any:
    return joined.select("key", a=col("n"), b=col("n_right"), c=pl.lit(0, pl.Int64))


def loop(inputs: Inputs) -> Any:
    riders = inputs.timeless.select("key", "n", left=col("n") % 5, rounds=pl.lit(0, pl.Int64))
    gone = riders.map(lambda row: Rider(row.key, row.n, row.left, row.rounds), returns=Rider)
    return gone.iterate(go_round, uid="loop").select(
        "key", a=col("n"), b=col("rounds"), c=pl.lit(0, pl.Int64)
    )


def few(stream: Any) -> Any:
    return stream.filter(col("n") % FEW == 0).key_by("key")


SIZE, SLIDING, EVER = f"{SIZE_MS} ms", f"{3 * SIZE_MS} ms", "1 h"
ROWS: dict[str, Callable[[Inputs], Any]] = {
    "tumbling": lambda i: totals(i.left.window(tumbling(SIZE)), "tumbling"),
    "sliding": lambda i: totals(i.left.window(sliding(SLIDING, SIZE)), "sliding"),
    "session": lambda i: totals(i.left.window(session(f"{GAP_MS} ms")), "session"),
    "cumulative": lambda i: totals(i.left.window(cumulative(SLIDING, SIZE)), "cumulative", "window_end"),
    "count": lambda i: totals(i.left.window(count_window(7)), "count", None),
    "sliding_count": lambda i: totals(i.left.window(count_window(10, slide=3)), "sliding_count", None),
    "global": lambda i: totals(
        i.left.window(global_window()).trigger(every_rows(5), results="accumulating"), "global", None
    ),
    "own_trigger": lambda i: totals(
        i.left.window(global_window()).trigger(ThirdRows(), results="accumulating"), "own_trigger", None
    ),
    "early": lambda i: totals(
        i.left.window(tumbling(SIZE)).trigger(at_watermark(early=every_rows(3)), results="accumulating"),
        "early",
    ),
    "window_state": lambda i: (
        i.left.window(tumbling(SIZE))
        .trigger(at_watermark(early=every_rows(3)), results="accumulating")
        .process(Whole(), uid="window_state")
    ),
    "held": lambda i: i.lefts.process(Held(), uid="held"),
    "evicted": lambda i: (
        i.left.window(tumbling(SIZE)).evictor(evict_count(2)).process(last_ones, uid="evicted")
    ),
    "by_clock": lambda i: totals(
        i.timeless.key_by("key").window(processing_time(tumbling(SIZE))), "by_clock"
    ),
    "window_join": lambda i: pairs(
        i.left.window_join(i.right, tumbling(SIZE), how="full", uid="window_join")
    ),
    "interval_join": lambda i: pairs(
        i.left.interval_join(i.right, f"-{WITHIN_MS} ms", f"{WITHIN_MS} ms", how="full", uid="interval_join")
    ),
    "temporal_join": lambda i: pairs(i.left.temporal_join(i.right, how="left", uid="temporal_join")),
    "co_process": lambda i: i.left.connect(i.right).process(OfBoth(), uid="co_process"),
    "broadcast": lambda i: i.left.connect(i.rights.filter(col("n") % FEW == 0).broadcast()).process(
        Ruled(), uid="broadcast"
    ),
    "co_flat_map": lambda i: i.lefts.connect(i.rights).flat_map(OneOfTwo(), uid="co_flat_map"),
    "co_group": lambda i: i.left.co_group(i.right, tumbling(SIZE), Compared(), uid="co_group"),
    "session_join": lambda i: pairs(
        i.left.window_join(i.right, session(f"{SHORT_GAP_MS} ms"), how="full", uid="session_join")
    ),
    "session_group": lambda i: i.left.co_group(
        i.right, session(f"{SHORT_GAP_MS} ms"), Compared(), uid="session_group"
    ),
    "loop": loop,
}
TABLES: dict[str, Callable[[Inputs], Any]] = {
    "late": lambda i: totals(i.tardy.window(tumbling(SIZE)).allowed_lateness(EVER), "late"),
    "late_session": lambda i: totals(
        i.tardy.window(session(f"{GAP_MS} ms")).allowed_lateness(EVER), "late_session"
    ),
    "late_firing": lambda i: totals(
        i.tardy.window(tumbling(SIZE)).allowed_lateness(EVER).trigger(at_watermark(late=every_rows(4))),
        "late_firing",
    ),
    "late_by_clock": lambda i: totals(
        i.tardy.window(session(f"{GAP_MS} ms"))
        .allowed_lateness(EVER)
        .trigger(at_watermark(late=every_processing_time("30 ms"))),
        "late_by_clock",
    ),
    "early_by_time": lambda i: totals(
        i.left.window(tumbling(SIZE)).trigger(at_watermark(early=every("5 ms"))), "early_by_time"
    ),
    "early_by_delta": lambda i: totals(
        i.left.window(tumbling(SIZE)).trigger(at_watermark(early=delta("n", 40))), "early_by_delta"
    ),
    "regular_join": lambda i: pairs(few(i.lefts).join(few(i.rights), how="full", uid="regular_join")),
}
KINDS = [*ROWS, *TABLES]
TRIGGERED = ["late_firing", "late_by_clock", "early_by_time", "early_by_delta"]
UNITED = ["session_join", "session_group"]
CONNECTED = ["co_process", "broadcast", "co_flat_map"]
TIMELESS = ("by_clock", "loop")
"""What has no event time can be in no union with what has."""


def build(arguments: list[str]) -> Job:
    servers, left, right, rows, table, *kinds = arguments
    job = Job("kinds-of-windows")
    inputs = Inputs(job, servers, left, right)
    by_time = [as_rows(kind, ROWS[kind](inputs)) for kind in kinds if kind in ROWS and kind not in TIMELESS]
    if by_time:
        first, *others = by_time
        first.union(*others).sink_to(KafkaSink(bootstrap_servers=servers, topic=rows), uid="rows")
    for kind in kinds:
        if kind in TIMELESS:
            made = as_rows(kind, ROWS[kind](inputs))
            made.sink_to(KafkaSink(bootstrap_servers=servers, topic=rows), uid=f"rows_{kind}")
        if kind in TABLES:
            named = [col("a").fill_null(-1)] + [col("b").fill_null(-1)] * (kind == "regular_join")
            name = pl.concat_str([pl.lit(kind), col("key"), *named], separator=" ")
            changes = as_rows(kind, TABLES[kind](inputs)).with_columns(name=name)
            sink = KafkaSink(bootstrap_servers=servers, topic=table, key="name", upsert=True)
            changes.sink_to(sink, uid=f"table_{kind}")
    return job


def as_rows(kind: str, stream: Any) -> Any:
    return stream.select("key", "a", "b", "c", kind=pl.lit(kind))
