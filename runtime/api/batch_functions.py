"""Functions over whole batches, as steps: what Stream.map_batches leads to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onceflow.runtime.api.error_policies import OnError, aside_of
from onceflow.runtime.api.record_functions import always
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import check_event_time, refuse_event_time_without_watermarks
from onceflow.runtime.graph.functions import takes_polars
from onceflow.runtime.graph.steps import Call, Rows
from onceflow.runtime.operators.map_batches import MapBatches
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream


def map_batches(
    stream: Stream[Any],
    uid: str,
    fn: Callable[[Any], Any],
    schema: pa.Schema | type,
    event_time: str | None,
    behind: str | int,
    on_error: OnError,
) -> Stream[Any]:
    """See Stream.map_batches."""
    record_type = None if isinstance(schema, pa.Schema) else schema
    made = schema if isinstance(schema, pa.Schema) else arrow_schema(schema)
    has_event_time, behind_ms = stream._input.rows.has_event_time, duration_ms(behind, "behind")
    if event_time is not None:
        check_event_time(event_time, made, uid)
        refuse_event_time_without_watermarks(uid, event_time, has_event_time)
    elif behind_ms:
        raise GraphError(f"operator {uid!r}: behind={behind!r} has no effect without event_time=")
    operator = partial(MapBatches, uid, fn, made, takes_polars(fn, uid), event_time, behind_ms)
    reads = frozenset(stream.schema.names)
    aside = aside_of(on_error, uid, fn, stream.schema)
    build = always(uid, fn, operator, made, aside.policy)
    work = Call(build, reads, False, aside.is_wanted, behind_ms, aside.is_wanted)
    rows = Rows(made, record_type, has_event_time, event_time)
    return stream._add(uid, f"map_batches {function_name(fn)}", work, rows, aside)
