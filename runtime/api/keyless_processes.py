"""process(...) on a stream without a key, as a step: what Stream.process leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from onceflow.runtime.api.error_policies import OnError, aside_of
from onceflow.runtime.api.record_functions import kept_by
from onceflow.runtime.api.records_of_functions import record_taken, records_made
from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.lives import check_life
from onceflow.runtime.graph.steps import Built, Call, Rows, Step
from onceflow.runtime.operators.declared import declared_sides, declared_types
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.operators.processing.keyless_process import KeylessConfig, Process, check_keyless
from onceflow.runtime.types.records_of_columns import RecordReader

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream


def processed_each(
    stream: Stream[Any], process: object, returns: type | None, uid: str | None, on_error: OnError
) -> Stream[Any]:
    """See Stream.process."""
    rows, name = stream._input.rows, type(process).__name__
    if not isinstance(process, Process):
        wanted = "expected an object of a class derived from Process"
        if isinstance(process, KeyedProcess):
            wanted = f"{name} is a KeyedProcess: write stream.key_by(...).process({name}(...))"
        raise GraphError(f"process({process!r}): {wanted}")
    uid = stream._job.new_uid(uid, f"process-{name}", stream._input.step.anchor)
    check_life(process, uid)
    check_keyless(process, uid)
    taken, given = declared_types(process, Process) or [None] * 2
    reader = RecordReader(record_taken(process.process, taken, uid, rows))
    made, writer = records_made(process.process, returns or given, uid, rows.has_event_time)
    sides = declared_sides(process, uid)
    aside = aside_of(on_error, uid, process.process, rows.schema)
    if aside.tag in sides:
        raise GraphError(f"operator {uid!r}: its class has a side output {aside.tag!r}: name another")
    lists = kept_by(cast(Any, process), uid, aside.policy)
    config = KeylessConfig(uid, process, reader, writer, rows.has_event_time, lists, aside.policy)
    built = Built(config.create, writer.schema, config.description, config.readers)
    work = Call(
        lambda _: built,
        aside.reads(frozenset(reader.columns)),
        sets_aside=aside.is_wanted,
        makes_rows=True,
    )
    outputs = aside.outputs(made) | {
        name: Rows(side.schema, side.record_type, rows.has_event_time) for name, side in sides.items()
    }
    step = Step(uid, f"process {name}", work, (stream._input,), outputs, stream._input.step.anchor)
    return stream._job.add(step, {**{name: name for name in sides}, **aside.tags})
