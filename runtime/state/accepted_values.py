"""What a declared state accepts: a check of each value at the user's line, made once for its type."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.encoding import encoder
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.single_types import PYTHON_OF
from onceflow.runtime.types.value_types import JsonValue, Plain

_INT64 = range(-(1 << 63), 1 << 63)


def acceptor(name: str, value_type: Any) -> Callable[[Any], Any]:
    """A function that returns what is remembered for a value, or raises TypeError at the user's line."""
    of = describe_type(value_type, f"state {name!r}")
    if of.nullable and not isinstance(of.kind, JsonValue):
        raise GraphError(f"state {name!r}: a value can't be None, since None says that there is none")
    plain = PYTHON_OF[of.arrow] if isinstance(of.kind, Plain) else None
    encode = encoder(of) if of.is_single else None

    def accept(value: Any) -> Any:
        if type(value) is plain and (plain is not int or value in _INT64):
            return value
        if value is None:
            raise TypeError(f"state {name!r} is set to None: clear() forgets a value")
        if plain is not None:
            return _converted(name, plain, value)
        if encode is not None:
            _encoded(name, of.said, encode, value)
        return value

    return accept


def _converted(name: str, plain: Any, value: Any) -> Any:
    """A value that is not exactly of the declared type, but may be taken for one (numpy's, subclasses)."""
    if _is_other(plain, value):
        pass
    elif plain is int and hasattr(value, "__index__"):
        if int(value) not in _INT64:
            raise OverflowError(f"state {name!r}: {value} does not fit 64 bits")
        return int(value)
    elif plain is float and hasattr(value, "__float__"):
        return float(value)
    elif isinstance(value, plain):
        return value
    raise TypeError(f"state {name!r} is declared {type_name(plain)} but is set to {repr(value)[:80]}")


def _encoded(name: str, said: str, encode: Callable[[Any], Any], value: Any) -> None:
    try:
        encode(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"state {name!r} is declared {said} but is set to {repr(value)[:80]}: {error}"
        ) from error


def _is_other(plain: Any, value: Any) -> bool:
    """Subclasses that Python has for history's sake: a bool is no number, a datetime no date."""
    if plain is dt.date:
        return isinstance(value, dt.datetime)
    return plain in (int, float) and isinstance(value, bool)
