"""What users of other engines write, and what it is called here: a sentence instead of a bare
AttributeError."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from onceflow.runtime.nearest import nearest

_JOB = {
    "add_source": "job.source(...)",
    "execute": "job.run()",
    "execute_async": "job.run()",
    "from_collection": "job.from_records(rows)",
    "from_data": "job.from_elements(...)",
    "from_file": 'job.from_files("in/*.jsonl", YourType)',
    "from_generator": "job.from_records(function)",
    "from_kafka": "job.source(KafkaSource(...))",
    "from_list": "job.from_records(rows)",
    "from_sequence": "job.from_elements(*range(10))",
    "from_source": "job.source(...)",
    "generate": "job.data_generator(YourType, rate=100)",
    "input": "job.source(...)",
    "print_plan": "job in a notebook, or `onceflow plan FILE.py`",
    "read_csv": 'job.from_files("in/*.csv", YourType)',
    "read_files": 'job.from_files("in/*.jsonl", YourType)',
    "read_json": 'job.from_files("in/*.jsonl", YourType)',
    "read_parquet": 'job.from_files("in/*.parquet")',
    "read_stream": 'job.source(KafkaSource(...)), or job.from_files(..., watch="10 s")',
    "start": "job.run()",
    "submit": "job.run()",
}
_JOINS = (
    'a.key_by("id").join(b.key_by("id"), ttl="1 d"), or one of the other joins: see the page '
    "'Joins' of the documentation"
)
_ONCE = (
    "stream.key_by(...).process(Once()), with a KeyedProcess that remembers what it has seen: the page "
    "'Deduplicate, and forget in time' of the documentation has it whole"
)
_STREAM = {
    "add_sink": "stream.sink_to(...)",
    "apply": "stream.map(function)",
    "aggregate": "stream.key_by(...).window(...).aggregate(...)",
    "assign_timestamps_and_watermarks": "job.source(..., watermarks=WatermarkStrategy...)",
    "co_group": _JOINS,
    "count": "stream.key_by(...).window(...).aggregate(n=count())",
    "distinct": _ONCE,
    "drop_duplicates": _ONCE,
    "execute": "job.run()",
    "execute_and_collect": "rows = stream.collect(), and job.run()",
    "for_each": "stream.foreach(function)",
    "group_by": "stream.key_by(...)",
    "inspect": "stream.print()",
    "interval_join": _JOINS,
    "join": _JOINS,
    "output": "stream.sink_to(...)",
    "reduce": "stream.key_by(...).reduce(function)",
    "show": "stream.print()",
    "sink": "stream.sink_to(...)",
    "take": "rows = stream.collect(), and job.run()",
    "to_pandas": "rows = stream.collect(), job.run(), and rows.to_polars()",
    "where": "stream.filter(...)",
    "window": "stream.key_by(...).window(...)",
    "write_csv": 'stream.to_files("out", format="csv")',
    "write_json": 'stream.to_files("out", format="jsonl")',
    "write_parquet": 'stream.to_files("out")',
    "write_to": "stream.sink_to(...)",
}
_RUNNING = (
    "keyed.reduce(function) for a running result, or keyed.window(...).aggregate({}) for one per window"
)
_ENDS = ("collect", "foreach", "foreach_batch", "print", "sink_to", "to_files")
_BEFORE_KEYS = ("filter", "map_async", "map_batches", "select", "with_columns")
_KEYED = {
    **{each: f"stream.{each}(...) before key_by, or keyed.reduce(...).{each}(...)" for each in _ENDS},
    **{each: f"stream.{each}(...), and key_by(...) behind it" for each in _BEFORE_KEYS},
    "agg": _RUNNING.format("..."),
    "aggregate": _RUNNING.format("..."),
    "count": _RUNNING.format("n=count()"),
    "flat_map": "keyed.process(YourProcess())",
    "map": "keyed.process(YourProcess())",
    "sum": _RUNNING.format('total=sum_("amount")'),
}
_WINDOWED = {
    **{each: f"windows.aggregate(...).{each}(...)" for each in _ENDS},
    "agg": "windows.aggregate(...)",
    "apply": "windows.reduce(function), or windows.aggregate(...) with an AggregateFunction",
    "count": "windows.aggregate(n=count())",
    "side_output_late_data": 'windows.late_to("late")',
    "sum": 'windows.aggregate(total=sum_("amount"))',
}
_CONNECTED = {
    "key_by": "a.key_by(...).connect(b.key_by(...))",
}
_CONNECTED_BY_KEY = {
    "flat_map": ".process(YourCoProcess())",
    "map": ".process(YourCoProcess())",
}
_CALLS: Mapping[str, Mapping[str, str]] = {
    "Job": _JOB,
    "JobGraphBuilder": _JOB,
    "Stream": _STREAM,
    "KeyedStream": _KEYED,
    "WindowedStream": _WINDOWED,
    "ConnectedStreams": _CONNECTED,
    "KeyedConnectedStreams": _CONNECTED_BY_KEY,
    "BroadcastConnectedStreams": {},
}


def no_such_name(owner: object, name: str) -> AttributeError:
    """The error for a name that a job or a stream has not, with the nearest right call."""
    kind = type(owner).__name__
    return AttributeError(f"a {kind} has no {name!r}{_advice(owner, kind, name)}", name=name, obj=owner)


def _advice(owner: object, kind: str, name: str) -> str:
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if snake in _CALLS[kind]:
        return f": write {_CALLS[kind][snake]}"
    names = [each for each in dir(owner) if not each.startswith("_")]
    return nearest(snake, names)


def source_advice(given: object) -> str | None:
    """What to write instead of job.source(given); None: nothing comes to mind."""
    if isinstance(given, str | PathLike):
        return f"job.from_files({str(given)!r}, YourType)"
    if isinstance(given, type):
        return None
    if callable(given):
        return f"job.from_records({getattr(given, '__name__', 'function')})"
    if hasattr(given, "__next__"):
        return "job.from_records(function), with the function that makes it, not called yet"
    if isinstance(given, Iterable) or hasattr(given, "__arrow_c_stream__"):
        return "job.from_records(rows)"
    return None


def sink_advice(given: Any) -> str | None:
    """What to write instead of stream.sink_to(given); None: nothing comes to mind."""
    if given is print:
        return "stream.print()"
    if isinstance(given, str | PathLike):
        return f"stream.to_files({str(given)!r})"
    if isinstance(given, list):
        return "rows = stream.collect(), and look at rows after job.run()"
    if callable(given) and not isinstance(given, type):
        return f"stream.foreach({getattr(given, '__name__', 'function')})"
    return None
