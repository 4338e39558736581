"""How a function that is called with each record becomes an operator.

Annotations are resolved before, when the graph is built, into readers and schemas: in a slot the user's
module may not be there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from onceflow.runtime.graph.steps import Build, Built
from onceflow.runtime.operators import stateless
from onceflow.runtime.operators.failed_records import ErrorPolicy
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.types.records_of_columns import RecordReader


def always(operator: Callable[[], Any], schema: pa.Schema, on_error: ErrorPolicy | None = None) -> Build:
    return lambda _: Built(lambda: stateless.Stateless(operator(), on_error), schema)


def filter_records(
    uid: str,
    fn: Callable[..., Any],
    reader: RecordReader,
    on_error: ErrorPolicy | None,
    schema: pa.Schema,
) -> Built:
    def create() -> Operator:
        return stateless.Stateless(stateless.FilterRecords(uid, fn, reader), on_error)

    return Built(create, schema)


def key_records(operator: Callable[[], stateless.KeyRecords], field: pa.Field, schema: pa.Schema) -> Built:
    def create() -> Operator:
        return stateless.Stateless(operator())

    return Built(create, schema.append(field))
