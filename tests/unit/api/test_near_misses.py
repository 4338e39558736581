"""What users of other engines write ends in a sentence with the call that it is here."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow import Job, WatermarkStrategy, tumbling
from onceflow.runtime.api import near_misses
from onceflow.runtime.errors import GraphError
from onceflow.runtime.mistakes import as_sentence
from onceflow.sinks.print import PrintSink


def numbers() -> list[int]:
    return [1]


SOURCES: list[tuple[Any, str]] = [
    ([1, 2], "write job.from_records(rows); expected a source"),
    (pa.table({"n": [1]}), "write job.from_records(rows)"),
    (pl.DataFrame({"n": [1]}), "write job.from_records(rows)"),
    (range(3), "write job.from_records(rows)"),
    ("in/*.jsonl", "write job.from_files('in/*.jsonl', YourType)"),
    (Path("in"), "write job.from_files('in', YourType)"),
    (numbers, "write job.from_records(numbers)"),
    (iter([1]), "write job.from_records(function), with the function that makes it, not called yet"),
    (3, "job.source(...) is 3, a int: expected a source"),
]


@pytest.mark.parametrize(("given", "sentence"), SOURCES, ids=lambda each: type(each).__name__)
def test_what_is_given_as_a_source(given: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=re.escape(sentence)):
        Job("job").source(given)


SINKS: list[tuple[Any, str]] = [
    (print, "write stream.print()"),
    ("out", "write stream.to_files('out')"),
    ([], "write rows = stream.collect(), and look at rows after job.run()"),
    (numbers, "write stream.foreach(numbers)"),
    (3, "is 3, a int: expected a sink"),
]


@pytest.mark.parametrize(("given", "sentence"), SINKS, ids=lambda each: type(each).__name__)
def test_what_is_given_as_a_sink(given: Any, sentence: str) -> None:
    with pytest.raises(GraphError, match=re.escape(sentence)):
        Job("job").from_elements(1).sink_to(given)


Use = Callable[[Any], object]
NAMES: list[tuple[Use, str]] = [
    (lambda job: job.from_collection, "a Job has no 'from_collection': write job.from_records(rows)"),
    (lambda job: job.fromElements, "a Job has no 'fromElements' (did you mean 'from_elements'?)"),
    (lambda job: job.addSource, "a Job has no 'addSource': write job.source(...)"),
    (lambda job: job.execute, "a Job has no 'execute': write job.run()"),
    (lambda job: job.data_generater, "a Job has no 'data_generater' (did you mean 'data_generator'?)"),
    (lambda job: job.qqq, "a Job has no 'qqq'"),
    (lambda job: job.from_elements(1).keyBy, "a Stream has no 'keyBy' (did you mean 'key_by'?)"),
    (lambda job: job.from_elements(1).add_sink, "a Stream has no 'add_sink': write stream.sink_to(...)"),
    (
        lambda job: job.from_elements(1).join,
        """a Stream has no 'join': write a.key_by("id").join(b.key_by("id"), ttl="1 d")""",
    ),
    (lambda job: job.from_elements(1).drop_duplicates, "a KeyedProcess that remembers what it has seen"),
    (lambda job: job.from_elements(1).key_by("value").aggregate, "keyed.window(...).aggregate(...) for one"),
    (
        lambda job: job.from_elements(1).key_by("value").print,
        "has no 'print': write stream.print(...) before key_by, or keyed.reduce(...).print(...)",
    ),
    (
        lambda job: job.from_elements(1).key_by("value").filter,
        "a KeyedStream has no 'filter': write stream.filter(...), and key_by(...) behind it",
    ),
    (lambda job: windows(job).sinkTo, "no 'sinkTo': write windows.aggregate(...).sink_to(...)"),
    (lambda job: windows(job).count, "a WindowedStream has no 'count': write windows.aggregate(n=count())"),
    (lambda job: job.from_elements(1).execute_and_collect, "write rows = stream.collect(), and job.run()"),
]


def windows(job: Job) -> Any:
    stream = job.from_elements({"ts": 1}, watermarks=WatermarkStrategy.monotonous("ts"))
    return stream.key_by("ts").window(tumbling("10 s"))


@pytest.mark.parametrize(("use", "sentence"), NAMES)
def test_a_name_of_another_engine(use: Use, sentence: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(sentence)):
        use(Job("job"))


ENDS: list[tuple[str, Use]] = [
    ("print", lambda stream: stream.print()),
    ("foreach", lambda stream: stream.foreach(seen)),
    ("foreach_batch", lambda stream: stream.foreach_batch(seen_batch)),
    ("to_files", lambda stream: stream.to_files("out")),
    ("sink_to", lambda stream: stream.sink_to(PrintSink())),
]


def seen(row: Any) -> None: ...


def seen_batch(batch: pa.RecordBatch) -> None: ...


@pytest.mark.parametrize(("call", "end"), ENDS)
def test_what_follows_the_end_of_a_stream_is_a_statement_of_its_own(call: str, end: Use) -> None:
    ended: Any = end(Job("job").from_elements({"n": 1}))
    assert repr(ended) == f"the rows go to {call}(...); write job.run() to run the job"
    told = f"write two statements: stream.{call}(...), and stream.filter(...)"
    with pytest.raises(AttributeError, match=re.escape(told)) as raised:
        ended.filter("n")
    assert f"a StreamEnd has no 'filter': {call}(...) writes the rows" in str(as_sentence(raised.value, "x"))


def test_each_call_that_is_advised_is_there() -> None:
    job = Job("job")
    stream = job.from_elements(1)
    owners = {"job": job, "stream": stream, "keyed": stream.key_by("value"), "windows": windows(job)}
    calls_of = {
        "job": near_misses._JOB,
        "stream": near_misses._STREAM,
        "keyed": near_misses._KEYED,
        "windows": near_misses._WINDOWED,
    }
    for kind, calls in calls_of.items():
        for advice in calls.values():
            for owner, name in re.findall(r"\b(job|stream|keyed|windows)\.(\w+)", advice):
                assert hasattr(owners[owner], name), advice
        assert not set(calls) & set(dir(owners[kind])), "what is there is no near miss"


def test_a_job_can_still_be_copied() -> None:
    job = Job("job")
    assert copy.copy(job).name == "job"
