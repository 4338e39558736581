"""The job under test: sessions of a key, in state that does not fit in memory: each has a long text."""

from dataclasses import dataclass

from onceflow import AggregateFunction, Job, WatermarkStrategy, count, session
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

TEXT_LETTERS = 8_000
GAP_MS = 3_000


@dataclass(frozen=True, slots=True)
class Visit:
    key: int
    ts: int


class Text(AggregateFunction[Visit, str, bool]):
    """A long text of the key, and whether it is still that when the session ends."""

    def create_accumulator(self) -> str:
        return ""

    def add(self, value: Visit, accumulator: str) -> str:
        text = f"{value.key}:".ljust(TEXT_LETTERS, ".")
        return text if accumulator in ("", text) else "another key's"

    def merge(self, accumulator_a: str, accumulator_b: str) -> str:
        return accumulator_a if accumulator_a == accumulator_b else "another key's"

    def get_result(self, accumulator: str) -> bool:
        return len(accumulator) == TEXT_LETTERS


def build(arguments: list[str]) -> Job:
    servers, source, target = arguments
    job = Job("running-sessions-under-test")
    visits = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[source], value=Json(Visit), until="latest"),
        watermarks=WatermarkStrategy.bounded_out_of_orderness("10 ms", event_time="ts"),
        uid="visits",
        rate_limit="600/s",
    )
    sessions = visits.key_by("key").window(session(f"{GAP_MS} ms"))
    sessions.aggregate(count=count(), is_right=Text(), uid="sessions").sink_to(
        KafkaSink(bootstrap_servers=servers, topic=target), uid="output"
    )
    return job
