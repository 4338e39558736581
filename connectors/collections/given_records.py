"""The source for what a program gives as records: elements, a collection, a table, or a function."""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from onceflow.connectors.collections.function_source import FunctionSource
from onceflow.connectors.collections.python_rows import FORMS, RowType, infer_row_type, row_type, shown
from onceflow.connectors.collections.table_source import TableSource
from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.columns_of_records import WrongFieldError
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.plain_types import plain_schema
from onceflow.runtime.types.user_functions import function_name

BYTES_MAX = 64 << 20
"""The most bytes of records that travel with a program: each slot gets a copy of all of it."""

_ITERABLES = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.Sequence,
    list,
    tuple,
)


def elements_source(elements: Sequence[Any], of: Any) -> TableSource:
    """The source of `job.from_elements(*elements, type=of)`. Raises GraphError."""
    where = "job.from_elements(...)"
    if (
        len(elements) == 1
        and isinstance(elements[0], list | set | tuple)
        and not hasattr(elements[0], "_fields")
    ):
        raise GraphError(
            f"{where} takes the elements themselves: write job.from_records(rows), or "
            "job.from_elements(*rows)"
        )
    if len(elements) == 1 and (callable(elements[0]) or hasattr(elements[0], "__next__")):
        raise GraphError(f"{where} takes the elements themselves: write job.from_records(function)")
    return _from_rows(elements, of, where)


def records_source(records: Any, of: Any) -> TableSource | FunctionSource:
    """The source of `job.from_records(records, type=of)`. Raises GraphError."""
    where = "job.from_records(...)"
    if isinstance(records, pa.RecordBatch | pa.Table) or hasattr(records, "__arrow_c_stream__"):
        return _from_table(pa.table(records), of, where)
    if callable(records):
        function: Any = records
        return FunctionSource(function, _yielded(function, of, where))
    if isinstance(records, str | bytes):
        raise GraphError(
            f"{where} takes records, and {shown(records)} is one value: write "
            f"job.from_files({shown(records)}, ...) for a file or folder, job.from_elements(...) for values"
        )
    if isinstance(records, dict):
        raise GraphError(f"{where} takes many records, and was given one dict: write job.from_elements(row)")
    if hasattr(records, "__next__"):
        raise GraphError(
            f"{where}: {shown(records)} can be gone through once, and after a restart it has to begin anew: "
            "give the function that makes it, without calling it, as in job.from_records(purchases)"
        )
    if not isinstance(records, collections.abc.Iterable):
        raise GraphError(
            f"{where}: {shown(records)} is a {type_name(type(records))}: give a list of records, a table, or "
            "a function that yields records"
        )
    return _from_rows(list(records), of, where)


def _from_rows(rows: Sequence[Any], of: Any, where: str) -> TableSource:
    made = row_type(of, where) if of is not None else infer_row_type(rows, where)
    try:
        batch = made.batch(rows)
    except WrongFieldError as error:
        raise GraphError(f"{where}: record {error.row + 1}: {error}") from error
    return _bounded(TableSource(pa.Table.from_batches([batch]), made.record_type), where)


def _from_table(table: pa.Table, of: Any, where: str) -> TableSource:
    table = table.cast(plain_schema(table.schema))
    if of is None:
        return _bounded(TableSource(table), where)
    made = row_type(of, where)
    missing = [name for name in made.schema.names if name not in table.schema.names]
    if missing:
        there = ", ".join(table.schema.names)
        raise GraphError(f"{where}: the table has no column {missing[0]!r}; it has {there}")
    try:
        typed = table.select(made.schema.names).cast(made.schema)
    except (pa.ArrowException, ValueError) as error:
        raise GraphError(f"{where}: the table does not fit type=: {str(error).splitlines()[0]}") from error
    return _bounded(TableSource(typed, made.record_type), where)


def _bounded(source: TableSource, where: str) -> TableSource:
    if source.table.nbytes > BYTES_MAX:
        raise GraphError(
            f"{where}: these records are {source.table.nbytes >> 20} MiB, and each slot gets a copy of them "
            f"with the program: at most {BYTES_MAX >> 20} MiB. Write them to files and read those with "
            "job.from_files(...), or give a function that yields them"
        )
    return source


def _yielded(function: Callable[[], Iterable[Any]], of: Any, where: str) -> RowType:
    """What the function's records are: by type=, or by its annotation `-> Iterator[Purchase]`."""
    name = function_name(function)
    _refuse_parameters(function, f"{where}: {name}")
    if of is not None:
        return row_type(of, where)
    try:
        returned = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        returned = None
    arguments = typing.get_args(returned)
    if typing.get_origin(returned) in _ITERABLES and arguments and arguments[0] is not Any:
        return row_type(arguments[0], where)
    raise GraphError(
        f"{where}: what {name} yields is not known before it runs: write `-> Iterator[YourType]`, or pass "
        f"type=, as {FORMS}"
    )


def _refuse_parameters(function: Callable[..., Any], who: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return  # some that are built in have no signature
    needed = [
        p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise GraphError(
            f"{who} needs the argument {needed[0]!r}, and is called without any: give a function that has "
            "it, as in functools.partial(function, ...)"
        )
