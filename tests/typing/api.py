"""The public face as types: checked by mypy --strict; build() is run too, but nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, assert_type

import polars as pl
import pyarrow as pa

from onceflow import (
    AggregateFunction,
    BatchContext,
    Ctx,
    Job,
    KeyedProcess,
    ListState,
    MapState,
    Retryable,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
    col,
    count,
    first,
    last,
    lit,
    max_,
    mean,
    min_,
    run,
    sliding,
    sum_,
    tumbling,
)
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.api.collected import Collected
from onceflow.runtime.api.stream import Stream
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True, slots=True)
class Reading:
    sensor: str
    celsius: float
    ts: int


class Fire(NamedTuple):
    sensor: str
    at: int


class Spread(AggregateFunction[Reading, list[float], float]):
    def create_accumulator(self) -> list[float]:
        return []

    def add(self, value: Reading, accumulator: list[float]) -> list[float]:
        return [*accumulator, value.celsius]

    def merge(self, accumulator_a: list[float], accumulator_b: list[float]) -> list[float]:
        return accumulator_a + accumulator_b

    def get_result(self, accumulator: list[float]) -> float:
        return max(accumulator) - min(accumulator)


class Alert(KeyedProcess[str, Reading, Fire]):
    last = ValueState("last", float)
    seen = MapState("seen", str, int)
    recent = ListState("recent", Reading)
    odd = SideOutput("odd", Reading)

    def process(self, record: Reading, ctx: Ctx) -> Iterator[Fire]:
        assert_type(self.last.get(), float | None)
        assert_type(self.seen.get("a"), int | None)
        assert_type(self.seen.get("a", 0), int)
        assert_type(self.recent.get(), list[Reading])
        self.last.set(record.celsius)
        self.last.set("hot")  # type: ignore[arg-type]
        self.seen.put("a", "b")  # type: ignore[arg-type]
        ctx.timers.event_time(record.ts + 5_000)
        ctx.emit(self.odd, record)
        ctx.emit(self.odd, Fire("a", 1))  # type: ignore[misc]
        yield Fire(record.sensor, record.ts)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Fire]:
        assert_type(fired.time, int)
        yield Fire(ctx.key, fired.time)


def is_hot(reading: Reading) -> bool:
    return reading.celsius > 60


def to_fire(reading: Reading) -> Fire:
    if reading.sensor == "busy":
        raise Retryable("ask again")
    return Fire(reading.sensor, reading.ts)


def fires(reading: Reading) -> Iterator[Fire]:
    yield Fire(reading.sensor, reading.ts)


def hotter(one: Reading, other: Reading) -> Reading:
    return max(one, other, key=lambda r: r.celsius)


def doubled(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(col("celsius") * 2)


def refused(readings: Stream[Reading]) -> None:
    """What a type checker finds before onceflow does."""
    readings.map(to_fire).map(to_fire)  # type: ignore[arg-type]
    readings.filter(to_fire)  # type: ignore[arg-type]


def checked(readings: Stream[Reading]) -> None:
    assert_type(readings.filter(is_hot), Stream[Reading])
    assert_type(readings.filter(col("celsius") > 3), Stream[Reading])
    assert_type(readings.map(to_fire), Stream[Fire])
    assert_type(readings.flat_map(fires), Stream[Fire])
    assert_type(readings.key_by("sensor").process(Alert()), Stream[Fire])
    assert_type(readings.key_by("sensor").window(tumbling("1 s")).reduce(hotter), Stream[Reading])
    assert_type(readings.key_by("sensor").window(sliding("1 s", "100 ms")).reduce(hotter), Stream[Reading])
    assert_type(readings.union(readings).rebalance(), Stream[Reading])


def noted(batch: pl.DataFrame, context: BatchContext) -> None:
    assert_type(context.batch_id, str)
    assert_type(context.checkpoint_id, int)


def made(number: int) -> Reading:
    return Reading("attic", 20.0, number)


def several() -> Iterator[Reading]:
    yield made(1)


def without_a_broker() -> None:
    job = Job("made")
    assert_type(job.from_elements(made(1), made(2)), Stream[Reading])
    assert_type(job.from_records([made(1)]), Stream[Reading])
    assert_type(job.from_records(several), Stream[Reading])
    assert_type(job.data_generator(made, rate=10), Stream[Reading])
    assert_type(job.data_generator(Reading, count=10, fields={"sensor": ["attic"]}), Stream[Reading])
    readings = job.from_files("in/*.csv", Reading, watch="10 s")
    assert_type(readings, Stream[Reading])
    readings.print(label="readings")
    readings.to_files("out", format="jsonl")
    readings.foreach(to_fire)
    readings.foreach(hotter)  # type: ignore[arg-type]
    readings.foreach_batch(noted)
    rows = readings.collect()
    assert_type(rows, Collected[Reading])
    assert_type(rows[0], Reading)
    assert_type(rows[1:], list[Reading])
    assert_type(rows.to_polars(), pl.DataFrame)
    job.from_collection([1])  # type: ignore[attr-defined]
    run(job, "checkpoints", master="threads[1]")


async def asked(reading: Reading) -> Fire:
    return blocked(reading)


def blocked(reading: Reading) -> Fire:
    return Fire(reading.sensor, reading.ts)


def build() -> Job:
    job = Job("fires", max_parallelism=256)
    source = KafkaSource(bootstrap_servers="localhost:9092", topics=["readings"], value=Json(Reading))
    readings: Stream[Reading] = job.source(
        source, watermarks=WatermarkStrategy.bounded_out_of_orderness("2 s", "ts", "30 s"), uid="readings"
    )
    sink = KafkaSink(bootstrap_servers="localhost:9092", topic="fires")
    fires = assert_type(readings.map_async(asked, retries=2, ordered=False), Stream[Fire])
    fires.union(assert_type(readings.map_async(blocked, timeout=None), Stream[Fire])).sink_to(sink)
    readings.map_batches(doubled, schema=pa.schema([("celsius", pa.float64())])).sink_to(sink)
    readings.select("sensor", low=col("sensor").str.to_lowercase(), one=lit(1)).sink_to(sink, uid="low")
    readings.with_columns(kelvin=col("celsius") + 273.15).sink_to(sink)
    totals = readings.key_by("sensor").window(tumbling("1 min")).late_to("late")
    result = totals.aggregate(
        n=count(),
        total=sum_("celsius"),
        low=min_("celsius"),
        high=max_(col("celsius")),
        average=mean("celsius"),
        opened=first("celsius"),
        closed=last("celsius"),
        spread=Spread(),
        uid="totals",
    )
    result.sink_to(sink)
    result.side_output("late").sink_to(sink)
    readings.key_by("sensor").process(Alert(), uid="alert").side_output(Alert.odd).sink_to(sink)
    return job
