"""How a function that is called with each record becomes an operator.

Annotations are resolved before, when the graph is built, into readers and schemas: in a slot the user's
module may not be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.steps import Build, Built
from onceflow.runtime.operators import stateless
from onceflow.runtime.operators.failed_records import ErrorPolicy
from onceflow.runtime.operators.function_state import FunctionStateConfig, StatefulFunction, function_state
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name


def always(
    uid: str,
    fn: Callable[..., Any],
    operator: Callable[[], Any],
    schema: pa.Schema,
    on_error: ErrorPolicy | None,
) -> Build:
    """`operator` makes a CallsFunction of this function, whose rows have this schema."""
    kept = kept_by(fn, uid, on_error)
    return lambda _: _built(kept, operator, schema, on_error)


def filter_records(
    uid: str,
    fn: Callable[..., Any],
    reader: RecordReader,
    on_error: ErrorPolicy | None,
    kept: FunctionStateConfig | None,
    schema: pa.Schema,
) -> Built:
    return _built(kept, lambda: stateless.FilterRecords(uid, fn, reader), schema, on_error)


def key_records(operator: Callable[[], stateless.KeyRecords], field: pa.Field, schema: pa.Schema) -> Built:
    def create() -> Operator:
        return stateless.Stateless(operator())

    return Built(create, schema.append(field))


def kept_by(fn: Callable[..., Any], uid: str, on_error: ErrorPolicy | None) -> FunctionStateConfig | None:
    """What a function keeps. Raises GraphError if it keeps something, and records for which it fails are to
    be left out."""
    kept = function_state(fn, uid)
    if kept is not None and on_error is not None:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} keeps state without a key, of which nothing is undone "
            "when it raises: leave on_error= out"
        )
    return kept


def _built(
    kept: FunctionStateConfig | None,
    operator: Callable[[], Any],
    schema: pa.Schema,
    on_error: ErrorPolicy | None,
) -> Built:
    if kept is None:
        return Built(lambda: stateless.Stateless(operator(), on_error), schema)
    return Built(lambda: StatefulFunction(operator(), kept), schema, kept.description, kept.readers)
