"""Numbers the records of each user, without a key, and sums up all amounts: each is state of a function.

onceflow run numbered.py ... -- SERVERS INPUT OUTPUT
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import InitializationContext, Job, OperatorListState, SnapshotContext, UnionListState
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Event:
    user: str
    amount: int
    ts: int


@dataclass(frozen=True)
class Count:
    user: str
    count: int


@dataclass(frozen=True)
class Sum:
    count: int
    total: int


class Number:
    """A user's records are in one partition, so each subtask has counted all that came before."""

    counts = UnionListState("counts", Count)
    sums = OperatorListState("sums", Sum, codec="msgspec")

    def initialize_state(self, ctx: InitializationContext) -> None:
        self.known: dict[str, int] = {}
        for each in self.counts.get():
            self.known[each.user] = max(each.count, self.known.get(each.user, 0))
        self.sum = Sum(0, 0)

    def snapshot_state(self, ctx: SnapshotContext) -> None:
        self.counts.update(Count(user, count) for user, count in self.known.items())
        if self.sum.count:
            self.sums.add(self.sum)
            self.sum = Sum(0, 0)

    def __call__(self, event: Event) -> Count:
        self.sum = Sum(self.sum.count + 1, self.sum.total + event.amount)
        number = self.known.get(event.user, 0)
        self.known[event.user] = number + 1
        return Count(event.user, number)


def build(arguments: list[str]) -> Job:
    servers, source, output = arguments
    job = Job("numbered")
    events = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[source], value=Json(Event)), uid="events"
    )
    sink = KafkaSink(bootstrap_servers=servers, topic=output, key="user")
    events.map(Number(), uid="number").sink_to(sink, uid="output")
    return job
