"""A process function or a function object alone: records in, time moved by hand, what it makes and keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from onceflow.runtime.api.job import Job
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.contracts import WatermarkStrategy
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.graph.functions import hints
from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.operators.processing.keyless_process import Process
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.testing.collecting_sink import CollectingSink, SinkRows
from onceflow.testing.job_run import JobRun, run
from onceflow.testing.script import At, Script
from onceflow.testing.scripted_source import ScriptedSource

_INPUT, _PROCESS, _OUT = "input", "process", "out"


class ProcessHarness:
    """Made by `harness`. What a call returns is the harness itself, so that calls can be chained."""

    def __init__(self, run: JobRun, made: type | None, sides: dict[str, SideOutput[Any]]) -> None:
        self._run = run
        self._made = made
        self._sides = sides

    def __enter__(self) -> ProcessHarness:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """The subtask ends: close() is called, if the class defines it."""
        self._run.close()

    def element(self, record: Any, at: str | int = 0) -> ProcessHarness:
        """A record comes, with this event time."""
        self._run.push(input=[At(record, at)])
        return self

    def advance(self, time: str | int) -> ProcessHarness:
        """Event time comes to `time`: what is due fires, and a record at or before it is late from now on."""
        self._run.advance_to(time)
        return self

    def advance_clock(self, duration: str | int) -> ProcessHarness:
        """Processing time goes on by `duration`."""
        self._run.advance_clock(duration)
        return self

    def restart(self, parallelism: int | None = None) -> ProcessHarness:
        """State and timers through a checkpoint, into a new object of the class."""
        self._run.restart(parallelism)
        return self

    @property
    def out(self) -> list[Any]:
        """The records that it has made so far, in order."""
        if self._made is None:
            raise UsageError("it makes no records but by its side outputs: see side()")
        return self._run.records(_OUT, self._made)

    def side(self, name: str) -> list[Any]:
        """The records that it has sent to a side output."""
        if name not in self._sides:
            raise UsageError(f"there is no side output {name!r}: there are {sorted(self._sides)}")
        return self._run.records(f"side-{name}", self._sides[name].record_type)

    def state(self, table: str | None = None) -> list[dict[str, Any]]:
        """What it keeps, a row for each key, with the key's timers."""
        return self._run.state(_PROCESS, table)


@explained
def harness(
    process: KeyedProcess[Any, Any, Any] | Process[Any, Any] | Callable[[Any], Any],
    key: str | Sequence[str] | None = None,
    takes: type | None = None,
    parallelism: int = 1,
    params: Mapping[str, Any] | None = None,
) -> ProcessHarness:
    """A KeyedProcess as it runs in a job, keyed by these fields of the records that it takes. `takes`: their
    type, where neither the class nor the annotations of process() say it. `params`: what it
    reads as `ctx.params` in open(); a class with close() is used in a `with`, at whose end it is called.

    Without `key` it is a Process, or a function object as map, filter or flat_map takes it, by what it
    returns: a record, a bool, or an iterable of records."""
    taken = takes or _taken(process)
    script = Script(_INPUT, arrow_schema(taken), taken)
    job = Job("harness")
    source = job.source(ScriptedSource(script), watermarks=WatermarkStrategy.monotonous(), uid=_INPUT)
    stream = _without_key(source, process) if key is None else _by_key(source, process, key)
    sides = {s.name: s for s in vars(type(process)).values() if isinstance(s, SideOutput)}
    made = stream.record_type
    if made is not None:
        stream.sink_to(CollectingSink(SinkRows(_OUT, pa.schema([]))), uid=_OUT)
    for name, side in sides.items():
        sink = CollectingSink(SinkRows(name, side.schema))
        stream.side_output(name).sink_to(sink, uid=f"side-{name}")
    return ProcessHarness(run(job, parallelism=parallelism, params=params, input=[]), made, sides)


def _by_key(source: Stream[Any], process: Any, key: str | Sequence[str]) -> Stream[Any]:
    keys = [key] if isinstance(key, str) else list(key)
    made: Stream[Any] = source.key_by(*keys).process(process, uid=_PROCESS)
    return made


def _without_key(source: Stream[Any], function: Any) -> Stream[Any]:
    if isinstance(function, KeyedProcess):
        raise UsageError(
            f"{type_name(type(function))} has a key: write harness({type_name(type(function))}(), key=...)"
        )
    if isinstance(function, Process):
        return source.process(function, uid=_PROCESS)
    returned = hints(function, _PROCESS).get("return")
    if returned is bool:
        return source.filter(function, uid=_PROCESS)
    made: Stream[Any]
    if is_record_type(returned):
        made = source.map(function, uid=_PROCESS)
    else:
        made = source.flat_map(function, uid=_PROCESS)
    return made


def _taken(process: Any) -> type:
    called = process.process if isinstance(process, KeyedProcess | Process) else process
    annotated = [each for name, each in hints(called, _PROCESS).items() if name != "return"]
    arguments = [
        a for base in getattr(type(process), "__orig_bases__", ()) for a in getattr(base, "__args__", ())
    ]
    first = 0 if isinstance(process, Process) else 1
    for found in (*annotated[:1], *arguments[first : first + 1]):
        if is_record_type(found):
            return found  # type: ignore[no-any-return]
    base = "KeyedProcess[K, I, O]" if first else "Process[I, O]"
    raise UsageError(
        f"{type_name(type(process))} does not say which records it takes: write class "
        f"{type_name(type(process))}({base}), or pass takes=YourType"
    )
