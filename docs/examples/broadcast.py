"""Rules that every subtask has: transfers are blocked by limits that may change while the job runs."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    BroadcastCtx,
    BroadcastState,
    Ctx,
    Job,
    KeyedBroadcastProcess,
    ListState,
    Timer,
    WatermarkStrategy,
)


@dataclass(frozen=True)
class Transfer:
    account: str
    cents: int
    ts: int


@dataclass(frozen=True)
class Limit:
    name: str
    cents: int
    ts: int


@dataclass(frozen=True)
class Blocked:
    account: str
    by: list[str]


class Check(KeyedBroadcastProcess[str, Transfer, Limit, Blocked]):
    """Waits with each transfer for the limits of its time, which another stream brings."""

    limits = BroadcastState("limits", str, int)
    waiting = ListState("waiting", int)

    def process(self, record: Transfer, ctx: Ctx) -> None:
        self.waiting.add(record.cents)
        ctx.timers.event_time(record.ts)

    def process_broadcast(self, rule: Limit, ctx: BroadcastCtx) -> None:
        if rule.cents or rule.name not in self.limits:
            self.limits.put(rule.name, rule.cents)
        else:
            self.limits.remove(rule.name)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Blocked]:
        for cents in self.waiting.get():
            by = [
                name
                for name, limit in self.limits.items()
                if cents > self.limits.get(name, limit)
            ]
            if by:
                yield Blocked(ctx.key, by)
        self.waiting.clear()


job = Job("transfers")
times = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts")
transfers = job.from_elements(
    Transfer("a", 900, 5), Transfer("b", 100, 5), watermarks=times
)
limits = job.from_elements(Limit("large", 500, 0), watermarks=times)
blocked = (
    transfers.key_by("account")
    .connect(limits.broadcast())
    .process(Check(), uid="check")
    .collect()
)
job.run(master="threads[2]")
assert blocked == [Blocked("a", ["large"])]
