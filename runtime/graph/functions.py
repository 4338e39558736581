"""What a user's function takes and returns, read from its annotations when the graph is built."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.lives import check_life
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import arrow_schema, describe_type, record_class
from onceflow.runtime.types.records_of_columns import VALUE, RecordReader, ValueReader
from onceflow.runtime.types.user_functions import function_name

_ITERABLES = (Iterator, Iterable, Generator, Sequence, list, tuple)


def hints(fn: Callable[..., Any], uid: str, with_extras: bool = False) -> dict[str, Any]:
    """The annotations of a function, method or callable object, resolved. `with_extras`: with Annotated
    around them. Raises GraphError for what can't be called."""
    if not callable(fn):
        raise GraphError(f"operator {uid!r}: {fn!r} is a {type(fn).__name__}: expected a function")
    check_life(fn, uid)
    plain = fn if isinstance(fn, types.FunctionType | types.MethodType) else type(fn).__call__
    if isinstance(fn, type) or not hasattr(plain, "__annotations__"):
        return {"return": fn} if isinstance(fn, type) else {}
    try:
        return typing.get_type_hints(plain, include_extras=with_extras)
    except NameError as error:
        raise GraphError(
            f"operator {uid!r}: an annotation of {function_name(fn)} can't be resolved ({error}): define the "
            "type at the top level of its module, or pass returns="
        ) from error


def returned_type(
    fn: Callable[..., Any], uid: str, wanted: str = "-> YourType", with_extras: bool = False
) -> Any:
    """The return annotation. Raises GraphError if there is none."""
    found = hints(fn, uid, with_extras).get("return")
    if found is None:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} has no return annotation, so the columns of its result "
            f"are unknown: write `{wanted}` or pass returns=YourType"
        )
    return found


def returned_record(fn: Callable[..., Any], uid: str, returns: type | None) -> type:
    """The record type that a map function returns."""
    found = returns or returned_type(fn, uid)
    if not is_record_type(found):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} returns {type_name(found)}, which is not a record type: "
            "return a dataclass or a NamedTuple (flat_map for none or several)"
        )
    return typing.cast(type, found)


def yielded_record(fn: Callable[..., Any], uid: str, returns: type | None) -> type:
    """The record type that a function yields: from `-> Iterator[T]`, `-> list[T]` or the like."""
    found = returns or returned_type(fn, uid, "-> Iterator[YourType]")
    if returns is None:
        args = [a for a in typing.get_args(found) if a is not type(None)]
        if typing.get_origin(found) in (typing.Union, types.UnionType) and len(args) == 1:
            found = args[0]
        if typing.get_origin(found) in _ITERABLES and typing.get_args(found):
            found = typing.get_args(found)[0]
        else:
            raise GraphError(
                f"operator {uid!r}: {function_name(fn)} returns {type_name(found)}; expected an iterable of "
                "records: write `-> Iterator[YourType]`"
            )
    if not is_record_type(found):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} yields {type_name(found)}, which is not a record type: "
            "use a dataclass or a NamedTuple"
        )
    return typing.cast(type, found)


def taken_record(fn: Callable[..., Any], uid: str, schema: pa.Schema, record_type: type | None) -> type:
    """The record type with which a per-record function is called.

    That of its parameter, if annotated with a record type; else the stream's; else a named tuple of the
    columns. Raises GraphError if the stream lacks one of its fields, or has another type there.
    """
    annotated = _first_parameter(fn, uid)
    if annotated is not None and not is_record_type(annotated):
        if schema.names == [VALUE]:  # from plain values, as in from_elements("ann", "bob")
            raise GraphError(
                f"operator {uid!r}: {function_name(fn)} takes {type_name(annotated)}, and gets a record "
                "with the field 'value': leave the annotation out and use row.value, or annotate a dataclass "
                "or NamedTuple that has the field"
            )
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {type_name(annotated)}; expected a record type: "
            "annotate its parameter with a dataclass or a NamedTuple, or not at all"
        )
    taken = annotated or record_type
    if taken is None:
        return record_class(schema)
    check_record(taken, schema, f"operator {uid!r}: {function_name(fn)}")
    return typing.cast(type, taken)


def record_reader(
    fn: Callable[..., Any], uid: str, schema: pa.Schema, record_type: type | None
) -> RecordReader:
    """What makes of a batch what a function is called with, record by record: a record type, as taken_record
    says; or, where rows are plain values, the values themselves, if its parameter is annotated with their
    type."""
    annotated = _first_parameter(fn, uid)
    if annotated is None or is_record_type(annotated) or schema.names != [VALUE]:
        return RecordReader(taken_record(fn, uid, schema, record_type))
    of = describe_type(annotated, f"operator {uid!r}: the parameter of {function_name(fn)}")
    column = schema.field(VALUE)
    if of.arrow != column.type:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {type_name(annotated)}, but the values of the "
            f"stream are {column.type}: annotate the parameter with their type, or leave the annotation out "
            f"and use row.{VALUE}"
        )
    if column.nullable and not of.nullable:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {type_name(annotated)}, but a value of the "
            f"stream may be null: annotate the parameter as {type_name(annotated)} | None"
        )
    return ValueReader(of, type_name(annotated))


def check_record(record_type: type, schema: pa.Schema, where: str) -> None:
    """Raises GraphError, beginning with `where`, if the columns can't make records of this type."""
    for field in arrow_schema(record_type):
        if field.name not in schema.names:
            raise GraphError(
                f"{where} takes {type_name(record_type)}, but the stream has no column {field.name!r}"
                f"{nearest(field.name, schema.names)}; there are {', '.join(schema.names)}"
            )
        column = schema.field(field.name)
        if column.type != field.type:
            raise GraphError(
                f"{where} takes {type_name(record_type)} with {field.name!r} as {field.type}, "
                f"but the column is {column.type}"
            )


def takes_polars(fn: Callable[..., Any], uid: str) -> bool:
    """Whether a map_batches function wants a polars DataFrame; without annotation it gets a RecordBatch."""
    annotated = _first_parameter(fn, uid)
    if annotated in (None, pa.RecordBatch, pl.DataFrame):
        return annotated is pl.DataFrame
    raise GraphError(
        f"operator {uid!r}: {function_name(fn)} takes {type_name(annotated)}; map_batches gives a "
        "pyarrow.RecordBatch or a polars.DataFrame, by the annotation of the parameter"
    )


def batch_reader(
    fn: Callable[..., Any], uid: str, schema: pa.Schema, record_type: type | None
) -> BatchReader:
    """What makes of a batch what a foreach_batch function takes, by the annotation of its first parameter: a
    pyarrow.RecordBatch (also without one), a polars.DataFrame, or a list of records."""
    annotated = _first_parameter(fn, uid)
    if annotated is not list and typing.get_origin(annotated) is not list:
        return PolarsReader() if takes_polars(fn, uid) else ArrowReader()
    (of,) = typing.get_args(annotated) or (record_type,)
    if of is None:
        return RecordReader(record_class(schema))
    if not is_record_type(of):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {type_name(annotated)}; expected a list of "
            "records: annotate it as list[YourType], with a dataclass or a NamedTuple"
        )
    check_record(of, schema, f"operator {uid!r}: {function_name(fn)}")
    return RecordReader(of)


def takes_context(fn: Callable[..., Any], uid: str) -> bool:
    """Whether a foreach_batch function takes a context behind its batch."""
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return False
    needed = [
        p
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 2:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {', '.join(p.name for p in needed)}; foreach_batch "
            "gives a batch, and a BatchContext to who takes two"
        )
    return len(needed) == 2


class BatchReader(typing.Protocol):
    """Makes of a batch what a function takes."""

    def read(self, batch: pa.RecordBatch) -> Any: ...


class ArrowReader:
    """The batch itself."""

    def read(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch


class PolarsReader:
    """The batch as a data frame."""

    def read(self, batch: pa.RecordBatch) -> Any:
        return pl.from_arrow(batch)


def _first_parameter(fn: Callable[..., Any], uid: str) -> Any:
    found = [t for name, t in hints(fn, uid).items() if name not in ("return", "self")]
    return found[0] if found and found[0] is not Any else None
