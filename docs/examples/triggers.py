"""When windows send their results: triggers there are, and one of one's own."""

from dataclasses import dataclass

from onceflow import (
    Job,
    Trigger,
    TriggerCtx,
    TriggerResult,
    ValueState,
    WatermarkStrategy,
    WindowBounds,
    at_processing_time,
    at_watermark,
    count,
    delta,
    every,
    every_processing_time,
    every_rows,
    global_window,
    purging,
    sum_,
    tumbling,
)


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int  # event time, ms


class FirstAndLarge(Trigger[Purchase]):
    """Fires with a window's first purchase, with each large one, and at its end."""

    is_known = ValueState("is_known", bool)

    def on_element(
        self,
        element: Purchase,
        timestamp: int | None,
        window: WindowBounds,
        ctx: TriggerCtx,
    ) -> TriggerResult:
        ctx.timers.event_time(window.max_timestamp)
        is_first = not self.is_known.get()
        self.is_known.set(True)
        if is_first or element.amount > 100:
            return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: WindowBounds, ctx: TriggerCtx
    ) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE


job = Job("early-totals")
purchases = job.from_elements(
    Purchase("ann", 5, 1_000),
    Purchase("ann", 7, 4_000),
    Purchase("ann", 1, 6_000),
    Purchase("ann", 200, 7_000),
    Purchase("ann", 3, 31_000),
    watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts"),
)
by_user = purchases.key_by("user")
late = by_user.window(tumbling("10 s")).allowed_lateness("1 min", results="discarding")
hours = by_user.window(tumbling("1 h"))
all_time = by_user.window(global_window())

early = hours.trigger(at_watermark(early=every_rows(2)), results="accumulating")
totals = early.aggregate(total=sum_("amount")).collect()
new_only = hours.trigger(purging(every_rows(2))).aggregate(total=sum_("amount"))
added = new_only.collect()
refreshed = hours.trigger(every("10 s"), results="accumulating")
so_far = refreshed.aggregate(n=count()).collect()
jumps = all_time.trigger(delta("amount", 100), results="accumulating")
jumped = jumps.aggregate(n=count()).collect()
by_clock = all_time.trigger(every_processing_time("1 h"), results="discarding")
left = by_clock.aggregate(n=count()).collect()
by_end = hours.trigger(at_processing_time(), results="accumulating")
ended = by_end.aggregate(n=count()).collect()
by_hundreds = late.trigger(at_watermark(late=every_rows(100)), results="discarding")
in_parts = by_hundreds.aggregate(total=sum_("amount")).collect()
own = hours.trigger(FirstAndLarge(), results="accumulating")
noticed = own.aggregate(n=count()).collect()

job.run(master="threads[1]")
assert [row["total"] for row in totals] == [12, 213, 216]
assert [row["total"] for row in added] == [12, 201]
assert so_far[-1]["n"] == 5
assert jumped == [{"user": "ann", "n": 4}, {"user": "ann", "n": 5}]
assert ended[-1]["n"] == 5
assert left == [{"user": "ann", "n": 5}]
assert [row["total"] for row in in_parts] == [213, 3]
assert [row["n"] for row in noticed] == [1, 4, 5]
