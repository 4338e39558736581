"""What a user writes: every mistake is refused when it is written, by name, with its own sentence."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.contracts import WatermarkStrategy
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.graph.plan import describe
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.by_clock import processing_time
from onceflow.runtime.operators.assigners.counting import count_window
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.state.handles import MapState, ValueState
from onceflow.sinks.print import PrintSink

col = pl.col


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    type: str
    amount: int
    ts: int
    at: dt.datetime
    tags: list[str]
    ratio: float


@dataclass(frozen=True, slots=True)
class Total:
    user: str
    total: int


class Word(NamedTuple):
    word: str


def to_total(purchase: Purchase) -> Total:
    return Total(purchase.user, purchase.amount)


def to_other(one: Purchase, other: Purchase) -> Total:
    return Total(one.user, other.amount)


def without_annotation(purchase):  # type: ignore[no-untyped-def]
    return purchase


def returns_text(purchase: Purchase) -> str:
    return purchase.user


def takes_totals(total: Total) -> Total:
    return total


def words(purchase: Purchase) -> Iterator[Word]:
    yield Word(purchase.user)


def to_list_of_text(purchase: Purchase) -> list[str]:
    return [purchase.user]


class Echo(KeyedProcess[str, Purchase, Total]):
    hot = SideOutput("hot", Word)


class IntKey(KeyedProcess[int, Purchase, Total]): ...


class TakesTotals(KeyedProcess[str, Total, Total]): ...


class MakesText(KeyedProcess[str, Purchase, str]): ...


class TwoOfAName(KeyedProcess[str, Purchase, Total]):
    one = ValueState("last", float)
    two = ValueState("last", int)


@pytest.fixture
def job() -> JobGraphBuilder:
    return JobGraphBuilder("totals")


@pytest.fixture
def purchases(job: JobGraphBuilder, list_source: Any) -> Stream[Purchase]:
    watermarks = WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts")
    return job.source(list_source(Purchase), watermarks, uid="purchases")


Use = Callable[[Stream[Any]], object]

MISTAKES: list[tuple[Use, str]] = [
    (
        lambda s: s.filter(col("typ") != "x"),
        "operator 'purchases.filter': there is no column 'typ' .did you mean 'type'",
    ),
    (lambda s: s.filter(col("amount") + 1), "a filter needs true or false, but .* is int64"),
    (lambda s: s.filter(col("amount") > "x"), "'purchases.filter': .* fails: "),
    (lambda s: s.filter(col("amount") > col("amount").mean()), "looks at more than one row"),
    (lambda s: s.with_columns(n=col("amount").cum_sum()), "looks at more than one row"),
    (lambda s: s.select("usr"), "there is no column 'usr' .did you mean 'user'"),
    (lambda s: s.select("user", col("type").alias("user")), "two columns are called 'user'"),
    (lambda s: s.select(3), "3 is neither a column's name nor a polars expression"),
    (lambda s: s.select(x=None), "the type of column 'x' is unknown"),
    (lambda s: s.select(col("user", "amount") + "x"), "makes several columns"),
    (
        lambda s: s.map(without_annotation),
        "without_annotation has no return annotation.*write `-> YourType` or pass returns=",
    ),
    (lambda s: s.map(lambda p: p), "<lambda> has no return annotation"),
    (lambda s: s.map(returns_text), "returns_text returns str, which is not a record type"),
    (lambda s: s.map(takes_totals), "takes_totals takes Total, but the stream has no column 'total'"),
    (lambda s: s.flat_map(to_total), "to_total returns Total; expected an iterable of records"),
    (lambda s: s.flat_map(to_list_of_text), "to_list_of_text yields str, which is not a record type"),
    (
        lambda s: s.select(user=col("amount"), total=col("amount")).map(takes_totals),
        "takes Total with 'user' as string, but the column is int64",
    ),
    (
        lambda s: s.map_batches(lambda b: b, pa.schema([("x", pa.int64())]), event_time="y"),
        "there is no event-time column 'y'",
    ),
    (
        lambda s: s.map_batches(lambda b: b, pa.schema([("x", pa.int64())]), behind="1 h"),
        "behind='1 h' has no effect without event_time=",
    ),
    (lambda s: s.key_by(), "key_by needs a column"),
    (lambda s: s.key_by("usr"), "there is no key column 'usr' .did you mean 'user'"),
    (lambda s: s.key_by("tags"), "key column 'tags' is list<.*>, which can't be a key"),
    (
        lambda s: s.key_by(col("user").str.to_lowercase()),
        "would replace column 'user': give it a name of its own",
    ),
    (lambda s: s.key_by("user", "user"), "the key has a column twice"),
    (lambda s: s.key_by("user", returns_text), "one function"),
    (lambda s: s.key_by(without_annotation), "without_annotation has no return annotation"),
    (lambda s: s.key_by(to_list_of_text), "key column 'key' is list<"),
    (lambda s: s.key_by("user").window("10 s"), "use tumbling"),
    (lambda s: s.key_by("user").window(tumbling("1 s")).aggregate(), "at least one aggregate"),
    (
        lambda s: s.key_by("user").window(count_window(2)).late_to("late"),
        "nothing is late there; leave it out",
    ),
    (
        lambda s: s.key_by("user").window(processing_time(tumbling("1 s"))).allowed_lateness("1 s"),
        "allowed_lateness of a window 1000 ms by the clock: nothing is late there",
    ),
    (
        lambda s: s.key_by("user").window(tumbling("1 s")).allowed_lateness("1 s", results="all"),
        "results='all'.: use one of 'retracting', 'accumulating', 'discarding'",
    ),
    (lambda s: s.window_all(tumbling("1 s")).late_to("late"), "late_to of window_all: use .key_by"),
    (
        lambda s: s.key_by("user").window(tumbling("1 s")).aggregate(total=sum_("amont")),
        "there is no column 'amont' .did you mean 'amount'",
    ),
    (lambda s: s.key_by("user").window(tumbling("1 s")).aggregate(total=sum_("type")), "'type' is string"),
    (
        lambda s: s.key_by("user").window(tumbling("1 s")).aggregate(user=count()),
        "two output columns are called 'user'",
    ),
    (
        lambda s: s.key_by("user").window(tumbling("1 s")).reduce(to_other),
        "to_other takes Purchase but returns Total; reduce returns what it takes",
    ),
    (lambda s: s.key_by("user").process(Echo), "expected an object of a class derived from KeyedProcess"),
    (
        lambda s: s.key_by("user").process(IntKey()),
        "its key is declared int, but key column 'user' is string",
    ),
    (
        lambda s: s.key_by("user").process(TakesTotals()),
        "TakesTotals takes Total, but the stream has no column 'total'",
    ),
    (lambda s: s.key_by("user").process(MakesText()), "MakesText makes str, which is not a record type"),
    (lambda s: s.key_by("user").process(TwoOfAName()), "two states are called 'last'"),
    (
        lambda s: s.key_by("user").process(Echo()).side_output("hott"),
        "has no side output 'hott' .did you mean 'hot'",
    ),
    (lambda s: s.side_output("late"), "'purchases' has no side output 'late'; there is none"),
    (
        lambda s: s.union(s.select("user")),
        "'purchases.union': the streams have different columns: 'purchases' has user string",
    ),
    (lambda s: s.map(to_total, uid="purchases"), "uid 'purchases' is used twice"),
    (lambda s: s.map(to_total, uid="a b"), "uid 'a b': use letters"),
    (lambda _: MapState("m", list[str], int), "a map's keys can't be list"),
    (lambda _: ValueState("v", float | None), "a value can't be None"),  # type: ignore[arg-type]
    (lambda _: ValueState("v", complex), "state 'v' is a complex, which has no Arrow type"),
    (lambda _: ValueState("v", int, ttl="0 s"), "what expires at once is never there"),
    (lambda _: ValueState("a b", int), "state name 'a b'"),
    (lambda _: JobGraphBuilder("no way"), "job name 'no way'"),
    (lambda _: JobGraphBuilder("job", max_parallelism=0), "max_parallelism=0"),
]


@pytest.mark.parametrize(("use", "sentence"), MISTAKES)
def test_a_mistake_is_refused_where_it_is_written(use: Use, sentence: str, purchases: Stream[Any]) -> None:
    with pytest.raises(GraphError, match=sentence):
        use(purchases)


def test_a_function_that_combines_plain_values_is_told_that_it_gets_records() -> None:
    def longer(one: str, other: str) -> str:
        return max(one, other, key=len)

    words = Job("words").from_elements("ann", "bob")
    sentence = "longer takes str, and gets a record with the field 'value': .* use row.value"
    with pytest.raises(GraphError, match=sentence):
        words.key_by("value").reduce(longer)


def test_window_all_is_said_in_the_plan_and_has_no_key_column(purchases: Stream[Any]) -> None:
    results = purchases.window_all(tumbling("1 s")).aggregate(n=count())
    assert results.schema.names == ["window_start", "window_end", "n"]
    [work] = [step for step in results._job._steps if step.name.startswith("window")]
    assert work.name == "window 1000 ms of all rows, in one subtask"


def test_windows_by_the_clock_or_by_count_need_no_event_time(job: JobGraphBuilder, list_source: Any) -> None:
    keyed = job.source(list_source(Purchase), uid="p").key_by("user")
    for window in (processing_time(tumbling("1 s")), count_window(2)):
        assert not keyed.window(window).aggregate(n=count())._input.rows.has_event_time


def test_a_window_without_event_time_is_refused(job: JobGraphBuilder, list_source: Any) -> None:
    keyed = job.source(list_source(Purchase), uid="p").key_by("user")
    with pytest.raises(GraphError, match="a window needs event time: pass watermarks= to the source"):
        keyed.window(tumbling("1 s"))


def test_new_event_times_in_a_stream_without_watermarks_are_refused(
    job: JobGraphBuilder, list_source: Any
) -> None:
    """A window behind them would never fire."""
    stream = job.source(list_source(Purchase), uid="p")
    with pytest.raises(GraphError, match=r"no watermark comes with this stream.*give the source watermarks="):
        stream.map_batches(lambda b: b, pa.schema([("x", pa.int64())]), event_time="x")


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ("tss", "there is no event-time column 'tss' .did you mean 'ts'"),
        ("ratio", "'ratio' is double; it must be int"),
    ],
)
def test_wrong_event_time_columns(column: str, sentence: str, job: JobGraphBuilder, list_source: Any) -> None:
    with pytest.raises(GraphError, match=sentence):
        job.source(list_source(Purchase), WatermarkStrategy.monotonous(column))


def test_streams_of_two_jobs_do_not_meet(purchases: Stream[Any], list_source: Any) -> None:
    other = JobGraphBuilder("other").source(list_source(Purchase))
    with pytest.raises(GraphError, match="'listsource' belongs to another job"):
        purchases.union(other)


def test_a_timestamp_can_be_event_time(job: JobGraphBuilder, list_source: Any) -> None:
    stream = job.source(list_source(Purchase), WatermarkStrategy.monotonous("at"))
    assert stream.key_by("user").window(tumbling("1 s"))


def test_columns_flow_through_each_step(purchases: Stream[Any]) -> None:
    doubled = purchases.with_columns(double=col("amount") * 2, user=col("user").str.to_uppercase())
    assert doubled.schema.names == [*purchases.schema.names, "double"]
    assert doubled.schema.field("double").type == pa.int64()
    assert doubled.schema.field("user").type == pa.string()
    assert purchases.select("user", x=1, low=col("type").str.to_lowercase()).schema.names == [
        "user",
        "x",
        "low",
    ]
    assert purchases.select(col("user", "amount")).schema.field("amount") == purchases.schema.field("amount")
    assert purchases.map(to_total).schema.names == ["user", "total"]
    assert purchases.flat_map(words).schema.names == ["word"]
    assert purchases.map(lambda p: Total(p.user, 1), returns=Total).schema.names == ["user", "total"]
    totals = purchases.key_by("user").window(tumbling("1 s")).aggregate(n=count(), total=sum_("amount"))
    assert totals.schema.names == ["user", "window_start", "window_end", "n", "total"]


def test_uids_are_derived_from_the_place_and_stable(list_source: Any) -> None:
    def uids(with_filter: bool) -> list[str]:
        job = JobGraphBuilder("job")
        stream = job.source(list_source(Purchase), WatermarkStrategy.monotonous("ts"))
        if with_filter:
            stream = stream.filter(col("amount") > 0)
        window = stream.key_by("user").window(tumbling("1 s")).aggregate(n=count())
        late = window.key_by("user").window(tumbling("1 min")).aggregate(n=count())
        stream.map(to_total).key_by("user").process(Doubled())
        return [late._input.step.uid, window._input.step.uid, job._steps[-1].uid]

    assert uids(False) == uids(True)
    assert uids(True) == [
        "listsource.window.window",
        "listsource.window",
        "listsource.process-Doubled",
    ]


class Doubled(KeyedProcess[str, Total, Total]):
    def process(self, record: Total, ctx: Ctx) -> Iterator[Total]:
        yield record


def test_uids_of_equal_steps_are_numbered(purchases: Stream[Any]) -> None:
    one, two = purchases.map(to_total), purchases.map(to_total)
    assert [one._input.step.uid, two._input.step.uid] == [
        "purchases.map-to_total",
        "purchases.map-to_total-2",
    ]


def test_a_stream_that_goes_nowhere_is_refused(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    kept = purchases.filter(col("amount") > 0)
    purchases.sink_to(sink)
    with pytest.raises(GraphError, match=r"the rows of 'purchases.filter' .filter. go nowhere"):
        job.build()
    kept.sink_to(sink)
    assert job.build()


def test_a_job_without_steps_is_refused(job: JobGraphBuilder) -> None:
    with pytest.raises(GraphError, match="job 'totals' has no source"):
        job.build()


def test_the_sink_is_asked_when_the_graph_is_built(purchases: Stream[Any], sink: Any) -> None:
    purchases.select("user").sink_to(sink, uid="out")
    purchases.select("amount").sink_to(sink)
    assert sink.checked == {"out": ["user"], "purchases.sink": ["amount"]}


def test_a_rate_limit_is_in_the_graph_and_what_it_would_make_late_is_refused() -> None:
    job = JobGraphBuilder("limited")
    job.from_files("in", Purchase, format="jsonl", rate_limit="6000/min").select("ts").sink_to(PrintSink())
    assert [source.rate_per_s for source in job.build().sources()] == [100.0]
    assert describe(job.build())["chains"][0]["operators"][0]["rate_limit_per_s"] == 100.0
    idle = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts", idle_after="1 s")
    with pytest.raises(GraphError, match=r"source 's': a split that counts as idle .* leave out idle_after="):
        job.from_files("in", Purchase, format="jsonl", rate_limit=5, watermarks=idle, uid="s")
    with pytest.raises(OptionError, match=r"source 't': rate_limit='fast' is no rate"):
        job.from_files("in", Purchase, format="jsonl", rate_limit="fast", uid="t")
