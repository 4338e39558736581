"""process(...) on a keyed stream, as a step: what KeyedStream.process leads to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceflow.runtime.api.error_policies import OnError, aside_of
from onceflow.runtime.api.records_of_functions import record_taken, records_made
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.keys import declared_keys
from onceflow.runtime.graph.steps import Built, Keyed, Rows, Step
from onceflow.runtime.operators.declared import check_states, declared_sides, declared_types
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.operators.processing.keyless_process import Process
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.types.records_of_columns import RecordReader

if TYPE_CHECKING:
    from onceflow.runtime.api.keyed_stream import KeyedStream
    from onceflow.runtime.api.stream import Stream


def processed(
    stream: KeyedStream[Any, Any],
    process: object,
    returns: type | None,
    uid: str | None,
    on_error: OnError,
) -> Stream[Any]:
    """See KeyedStream.process."""
    rows = stream._input.rows
    if not isinstance(process, KeyedProcess):
        name = type(process).__name__
        wanted = "expected an object of a class derived from KeyedProcess"
        if isinstance(process, Process):
            wanted = f"{name} is a Process, which has no key: write stream.process({name}(...)) before key_by"
        raise GraphError(f"process({process!r}): {wanted}")
    uid = stream._job.new_uid(uid, f"process-{type(process).__name__}", stream._input.step.anchor)
    key, taken, given = declared_types(process, KeyedProcess) or [None] * 3
    keys = declared_keys(key, stream._keys, rows.schema, uid)
    key_types = tuple(keys.get(name, stream._types.get(name)) for name in stream._keys)
    reader = RecordReader(record_taken(process.process, taken, uid, rows))
    made, writer = records_made(process.process, returns or given, uid, rows.has_event_time)
    sides = declared_sides(process, uid)
    check_states(process, uid, rows.has_event_time)
    aside = aside_of(on_error, uid, process.process, rows.schema)
    if aside.tag in sides:
        raise GraphError(f"operator {uid!r}: its class has a side output {aside.tag!r}: name another")
    config = ProcessConfig(
        uid,
        process,
        stream._keys,
        rows.schema,
        writer,
        reader,
        rows.has_event_time,
        key_types,
        on_error=aside.policy,
    )
    outputs = aside.outputs(made) | {
        name: Rows(side.schema, side.record_type, rows.has_event_time) for name, side in sides.items()
    }
    reads, build = frozenset(reader.columns), partial(_process_with_schema, config)
    work = Keyed(stream._keys, build, reads, frozenset(aside.tags.values()), True, stream._expressions)
    name = f"process {type(process).__name__} by {', '.join(stream._keys)}"
    step = Step(uid, name, work, (stream._input,), outputs, uid)
    return stream._job.add(step, {**{name: name for name in sides}, **aside.tags})


def _process_with_schema(config: ProcessConfig, schema: pa.Schema) -> Built:
    narrow = replace(config, schema=schema)
    return Built(narrow.create, config.made.schema, narrow.description, narrow.readers)
