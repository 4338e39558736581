"""A KeyedProcess alone."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, KeyedProcess, Timer, ValueState
from onceflow.testing import ProcessHarness, harness


@dataclass(frozen=True)
class Ping:
    host: str


@dataclass(frozen=True)
class Silent:
    host: str
    since: int


class Watch(KeyedProcess[str, Ping, Silent]):
    last = ValueState("last", int)

    def process(self, record: Ping, ctx: Ctx) -> None:
        assert ctx.event_time is not None
        self.last.set(ctx.event_time)
        ctx.timers.event_time(ctx.event_time + 60_000)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Silent]:
        last = self.last.get()
        if last is not None and last + 60_000 == fired.time:
            yield Silent(ctx.key, last)


test: ProcessHarness = harness(Watch(), key="host")
test.element(Ping("db"), at="1 s").element(Ping("db"), at="5 s").restart(parallelism=2)
assert test.advance("61 s").out == []
assert test.advance("65 s").out == [Silent("db", 5_000)]
assert [row["state"] for row in test.state()] == [{"last": 5_000}]
