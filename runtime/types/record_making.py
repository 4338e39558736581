"""Records of the user's type from columns: as the type itself would make them, at about half of the cost.

A frozen dataclass sets each field by a call of `object.__setattr__` in Python, and a named tuple is made
by a Python function. Where that is all that making one does, the fields are set column by column
instead, by loops that run in C. A type that does anything more is called for each row.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import repeat
from typing import Any

from onceflow.runtime.types.each_called import called_for_each

Columns = Sequence[list[Any]]
"""A list of values for each field, in the type's order, all of the same length."""

_GENERATED = "<string>"
"""The file name of code that `dataclasses` and `collections` compile from text."""


class RecordMaker:
    """Makes the rows of columns into records, equal to `list(map(record_type, *columns))`. Made when the
    graph is built, where it looks at the type; travels to the slots with what it has found."""

    def __init__(
        self,
        record_type: type,
        names: Sequence[str],
        by_keyword: Collection[str] = (),
        left_out: Collection[str] = (),
    ) -> None:
        """`names`: the type's fields, in the order of the columns; `by_keyword`: those of them that the
        type takes by keyword only; `left_out`: those that a record does not have where they are None, which
        is so in dicts only."""
        self._become(record_type, tuple(names), frozenset(by_keyword), frozenset(left_out))

    def _become(
        self,
        record_type: type,
        names: tuple[str, ...],
        by_keyword: frozenset[str],
        left_out: frozenset[str],
        way: _Way | None = None,
    ) -> None:
        way = _way(record_type, names) if way is None else way
        self._found = record_type, names, by_keyword, left_out, way
        self._make = _choose(record_type, names, by_keyword, left_out, way)

    def __getstate__(self) -> tuple[Any, ...]:
        """What a class has for its slots does not travel, so what sets them is made anew there."""
        return self._found

    def __setstate__(self, found: tuple[Any, ...]) -> None:
        self._become(*found)

    def __call__(self, columns: Columns) -> list[Any]:
        """`columns`: at least one."""
        return self._make(columns)


class _Way(Enum):
    """How records of a type are made."""

    CALL = "call"
    NAMED_TUPLE = "named tuple"
    FIELD_BY_FIELD = "field by field"


def _way(record_type: type, names: Sequence[str]) -> _Way:
    if _is_plain_named_tuple(record_type):
        return _Way.NAMED_TUPLE
    return _Way.FIELD_BY_FIELD if _is_plain_frozen_dataclass(record_type, names) else _Way.CALL


def _choose(
    record_type: type, names: Sequence[str], by_keyword: frozenset[str], left_out: frozenset[str], way: _Way
) -> Callable[[Columns], list[Any]]:
    if way is _Way.NAMED_TUPLE:
        new: Any = partial(tuple.__new__, record_type)
        return lambda columns: list(map(new, zip(*columns, strict=True)))
    if way is _Way.FIELD_BY_FIELD:
        setters = [_setter(record_type, name) for name in names]
        return lambda columns: _by_field(record_type, setters, columns)
    call = record_call(record_type, names, by_keyword, left_out)
    return lambda columns: called_for_each(call, *columns)


def record_call(
    record_type: type, names: Sequence[str], by_keyword: Collection[str], left_out: Collection[str] = ()
) -> Callable[..., Any]:
    """The type as a function of its fields by position, those that it takes by keyword too. For `left_out`
    see RecordMaker."""
    if record_type is dict:
        return lambda *values: {
            name: value
            for name, value in zip(names, values, strict=True)
            if value is not None or name not in left_out
        }
    if not by_keyword:
        return record_type
    keywords = [name for name in names if name in by_keyword]
    places = [n for n, name in enumerate(names) if name not in by_keyword]
    places_by_keyword = [n for n, name in enumerate(names) if name in by_keyword]

    def call(*values: Any) -> Any:
        given = dict(zip(keywords, [values[n] for n in places_by_keyword], strict=True))
        return record_type(*[values[n] for n in places], **given)

    return call


def _by_field(
    record_type: type, setters: Sequence[Callable[[list[Any], list[Any]], Iterator[None]]], columns: Columns
) -> list[Any]:
    records: list[Any] = list(map(object.__new__, repeat(record_type, len(columns[0]))))
    for setter, column in zip(setters, columns, strict=True):
        deque(setter(records, column), maxlen=0)  # runs it to its end
    return records


def _setter(record_type: type, name: str) -> Callable[[list[Any], list[Any]], Iterator[None]]:
    slot = inspect.getattr_static(record_type, name, None)
    if isinstance(slot, types.MemberDescriptorType):
        return partial(map, slot.__set__)
    return lambda records, column: map(object.__setattr__, records, repeat(name), column)


def _is_plain_named_tuple(record_type: type) -> bool:
    """Made by namedtuple or NamedTuple, and nothing of how it is made was replaced."""
    made = next((base for base in record_type.__mro__ if "_fields" in vars(base)), None)
    return (
        made is not None
        and tuple in made.__bases__
        and record_type.__new__ is made.__new__
        and inspect.getattr_static(record_type, "__init__") is object.__init__
    )


def _is_plain_frozen_dataclass(record_type: type, names: Sequence[str]) -> bool:
    """Whether `__init__` sets these fields and does nothing else."""
    own = vars(record_type)
    if not (dataclasses.is_dataclass(record_type) and "__dataclass_params__" in own and "__init__" in own):
        return False
    code = own["__init__"].__code__
    return (
        bool(own["__dataclass_params__"].frozen)
        and code.co_filename == _GENERATED
        and code.co_varnames[1 : code.co_argcount] == tuple(names)
        and [field.name for field in dataclasses.fields(record_type)] == list(names)  # so no InitVar
        and not hasattr(record_type, "__post_init__")
        and record_type.__new__ is object.__new__
    )
