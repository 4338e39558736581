"""Functions that answer later, as steps: what Stream.map_async leads to."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
import tenacity

from onceflow.runtime.api.error_policies import OnError, aside_of
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.making_calls import is_coroutine_function
from onceflow.runtime.graph.functions import record_reader, returned_record
from onceflow.runtime.graph.steps import Built, Call, Rows
from onceflow.runtime.operators.async_calls.async_map import AsyncMap
from onceflow.runtime.operators.async_calls.async_operator import Answered, AsyncConfig, AsyncOperator
from onceflow.runtime.operators.async_calls.frozen_calls import in_flight_description
from onceflow.runtime.operators.async_calls.retry_policy import RetryPolicy
from onceflow.runtime.operators.failed_records import ErrorPolicy
from onceflow.runtime.operators.function_state import refuse_function_state
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.user_functions import Reads, function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream

Retries = int | tenacity.BaseRetrying
CAPACITY = 100
TIMEOUT = "1 min"


class AskingOptions(TypedDict, total=False):
    """The options of Stream.map_async, for type checkers."""

    ordered: bool
    capacity: int
    timeout: str | int | None
    retries: Retries
    on_error: OnError


@dataclass(frozen=True, slots=True)
class Asking:
    """How calls are made, as the user says it: see Stream.map_async."""

    ordered: bool
    capacity: int
    timeout: str | int | None
    retries: Retries
    on_error: OnError

    def config(self, uid: str, reader: Reads, rows: Rows, policy: ErrorPolicy | None) -> AsyncConfig:
        """Checked. Raises GraphError for what can't be meant."""
        return AsyncConfig(
            uid,
            reader,
            rows.schema,
            rows.has_event_time,
            self.ordered,
            _checked_capacity(self.capacity, uid),
            None if self.timeout is None else _positive_ms(self.timeout, uid),
            _retry_policy(self.retries, uid),
            policy,
        )


def asking_of(options: AskingOptions) -> Asking:
    """These options, and the usual ones in the place of the others."""
    return Asking(
        options.get("ordered", True),
        options.get("capacity", CAPACITY),
        options.get("timeout", TIMEOUT),
        options.get("retries", 0),
        options.get("on_error", "fail"),
    )


def map_async(
    stream: Stream[Any], uid: str, fn: Callable[[Any], Any], returns: type | None, asking: Asking
) -> Stream[Any]:
    """See Stream.map_async."""
    check_called(fn, uid)
    refuse_function_state(fn, uid, "map_async")
    rows = stream._input.rows
    returned = returned_record(fn, uid, returns)
    reader = record_reader(fn, uid, rows.schema, rows.record_type)
    writer = RecordWriter.of(describe_record(returned))
    aside = aside_of(asking.on_error, uid, fn, rows.schema)
    reads = aside.reads(frozenset(reader.columns))
    config = asking.config(uid, reader, rows, aside.policy)
    answered = partial(AsyncMap, uid, fn, writer, asking.capacity)
    build = partial(built, config, answered, reads, "map_async", writer.schema)
    work = Call(build, reads, sets_aside=aside.is_wanted, answers_later=True)
    made = Rows(writer.schema, returned, rows.has_event_time)
    return stream._add(uid, f"map_async {function_name(fn)}", work, made, aside)


def built(
    config: AsyncConfig,
    answered: Callable[[], Answered],
    reads: frozenset[str],
    kind: str,
    made: pa.Schema,
    schema: pa.Schema,
) -> Built:
    """The operator for the columns that are really there; of them it keeps in flight what it reads."""
    kept = pa.schema([f for f in schema if f.name in reads] or [schema.field(0)])
    narrow = replace(config, schema=kept)
    return Built(lambda: AsyncOperator(narrow, answered()), made, in_flight_description(kind, kept))


def _checked_capacity(capacity: Any, uid: str) -> int:
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise GraphError(
            f"operator {uid!r}: capacity={capacity!r}: write how many records each subtask may ask for at a "
            "time, 1 or more"
        )
    return capacity


def _positive_ms(timeout: str | int, uid: str) -> int:
    timeout_ms = duration_ms(timeout, "timeout")
    if timeout_ms < 1:
        raise GraphError(f"operator {uid!r}: timeout={timeout!r}: a call needs 1 ms or more; None: no limit")
    return timeout_ms


def _retry_policy(retries: Any, uid: str) -> RetryPolicy | None:
    """What `retries=` says; None: a call is made once."""
    if isinstance(retries, tenacity.BaseRetrying):
        return RetryPolicy.of(retries)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise GraphError(
            f"operator {uid!r}: retries={retries!r}: write how many more attempts there are, or a "
            "tenacity.Retrying(stop=..., wait=..., retry=...)"
        )
    return RetryPolicy.times(retries) if retries else None


def check_called(fn: Any, uid: str) -> None:
    """Raises GraphError for functions whose calls answer with no record."""
    called = fn if inspect.isfunction(fn) or inspect.ismethod(fn) else getattr(type(fn), "__call__", fn)  # noqa: B004
    if inspect.isasyncgenfunction(called) or inspect.isgeneratorfunction(called):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} yields: return one record, as map_async makes one of each"
        )
    opens = getattr(type(fn), "open", None)
    if inspect.iscoroutinefunction(opens) and not is_coroutine_function(fn):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} is a blocking function, and its open() a coroutine: "
            "write both with `async def`, or neither"
        )
