"""The job under test: how many records of its key have come by then, and at the end, from state that does not
fit in memory: each key remembers a long text."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, Timer, ValueState, WatermarkStrategy
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

TEXT_LETTERS = 8_000
END_MS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Visit:
    key: int
    ts: int


@dataclass(frozen=True, slots=True)
class Count:
    key: int
    count: int
    at_end: bool


class Counts(KeyedProcess[int, Visit, Count]):
    count = ValueState("count", int)
    text = ValueState("text", str)

    def process(self, visit: Visit, ctx: Ctx) -> Iterator[Count]:
        text = self.text.get()
        if text is None:
            ctx.timers.event_time(END_MS + visit.key % 7)
            text = f"{visit.key}:".ljust(TEXT_LETTERS, ".")
            self.text.set(text)
        assert text.startswith(f"{visit.key}:"), "another key's"
        count = (self.count.get() or 0) + 1
        self.count.set(count)
        yield Count(visit.key, count, False)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Count]:
        yield Count(ctx.key, self.count.get() or 0, True)
        self.count.clear()
        self.text.clear()


def build(arguments: list[str]) -> Job:
    servers, source, target = arguments
    job = Job("running-counts-under-test")
    visits = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[source], value=Json(Visit), until="latest"),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("10 ms", event_time="ts"),
        uid="visits",
        rate_limit="600/s",
    )
    visits.key_by("key").process(Counts(), uid="counts").sink_to(
        KafkaSink(bootstrap_servers=servers, topic=target), uid="output"
    )
    return job
