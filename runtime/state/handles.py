"""ValueState, MapState, ListState: what a KeyedProcess remembers for each key.

Declared in the class with a name and a type, so that a savepoint can be read without the code:

    class Alert(KeyedProcess[str, Reading, Fire]):
        last = ValueState("last", float)

Inside process() and on_timer() `self.last` is the value of the current key. Another type than the
declared one is refused at once for str, int, float, bool, bytes, datetime and date; inside lists, dicts
and records it is found at the next checkpoint.
"""

from __future__ import annotations

import copy
import datetime as dt
import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.state.row_values import (
    Codec,
    Cursor,
    ListCodec,
    MapCodec,
    Outside,
    RowValues,
    ValueCodec,
)
from onceflow.runtime.types.encoding import encoder
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.single_types import PYTHON_OF
from onceflow.runtime.types.value_types import JsonValue, Plain

V = TypeVar("V")
K = TypeVar("K")
D = TypeVar("D")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_INT64 = range(-(1 << 63), 1 << 63)


class State:
    """What the three kinds have in common: a name, and for the operator `bind`."""

    def __init__(self, name: str, codec: Callable[[], Codec], ttl: str | None) -> None:
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise GraphError(f"state name {name!r}: use letters, digits, '.', '_' and '-'")
        if ttl is not None:
            raise GraphError(
                f"state {name!r}: ttl={ttl!r} is not supported yet: register an event-time timer and clear() "
                "the state in on_timer"
            )
        self.name = name
        self.of_rows: RowValues = Outside(codec())

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            there = sorted(each for each in dir(type(self)) if not each.startswith("_") and each != "bind")
            raise AttributeError(f"a {kind} has no {name!r}: it has {', '.join(there)}", name=name, obj=self)

    def bind(self, cursor: Cursor) -> Self:
        """A fresh state of the same declaration, whose current key is the cursor's. Called by the
        operator."""
        fresh = copy.copy(self)
        fresh.of_rows = RowValues(self.of_rows.codec, cursor)
        return fresh


@explained
class ValueState(State, Generic[V]):
    """One value for each key."""

    def __init__(self, name: str, value_type: type[V], ttl: str | None = None) -> None:
        super().__init__(name, lambda: ValueCodec(name, value_type), ttl)
        self._accept = _acceptor(name, value_type)

    def get(self) -> V | None:
        """The value of the current key, or None if it has none."""
        of_rows = self.of_rows
        value: V | None = of_rows.values[of_rows.cursor.row]
        return value

    def set(self, value: V) -> None:
        """Remember this for the current key. None is refused: clear() forgets."""
        of_rows = self.of_rows
        of_rows.values[of_rows.cursor.row] = self._accept(value)

    def clear(self) -> None:
        """Forget the value of the current key."""
        of_rows = self.of_rows
        of_rows.values[of_rows.cursor.row] = None


@explained
class MapState(State, Generic[K, V]):
    """A dictionary for each key; without entries it costs nothing."""

    def __init__(self, name: str, key_type: type[K], value_type: type[V], ttl: str | None = None) -> None:
        if not describe_type(key_type, f"state {name!r}").is_immutable:
            raise GraphError(
                f"state {name!r}: a map's keys can't be {type_name(key_type)}; use str, int or the like"
            )
        super().__init__(name, lambda: MapCodec(name, key_type, value_type), ttl)
        self._accept_key, self._accept = _acceptor(name, key_type), _acceptor(name, value_type)

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The entry, or `default` if there is none."""
        entries = self._entries()
        return default if entries is None else entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        of_rows = self.of_rows
        row = of_rows.cursor.row
        if of_rows.values[row] is None:
            of_rows.values[row] = {}
        of_rows.own(row)[self._accept_key(key)] = self._accept(value)

    def put_all(self, entries: Mapping[K, V]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: K) -> None:
        """Nothing happens if there is no such entry."""
        entries = self._entries()
        if entries is not None and key in entries:
            if len(entries) == 1:
                self.clear()
            else:
                del self.of_rows.own(self.of_rows.cursor.row)[key]

    def clear(self) -> None:
        """Forget all entries of the current key."""
        self.of_rows.values[self.of_rows.cursor.row] = None

    def contains(self, key: K) -> bool:
        return key in (self._entries() or ())

    def is_empty(self) -> bool:
        """Whether the current key has no entries."""
        return self._entries() is None

    def keys(self) -> KeysView[K]:
        return self._copy().keys()

    def values(self) -> ValuesView[V]:
        return self._copy().values()

    def items(self) -> ItemsView[K, V]:
        """A copy: entries may be put and removed while it is gone through."""
        return self._copy().items()

    def __contains__(self, key: object) -> bool:
        return key in (self._entries() or ())

    def __len__(self) -> int:
        return len(self._entries() or ())

    def __bool__(self) -> bool:
        return True  # a handle, not a container: `if self.seen:` would be a trap

    def _entries(self) -> dict[K, V] | None:
        of_rows = self.of_rows
        entries: dict[K, V] | None = of_rows.values[of_rows.cursor.row]
        return entries

    def _copy(self) -> dict[K, V]:
        return dict(self._entries() or {})


@explained
class ListState(State, Generic[V]):
    """A list for each key."""

    def __init__(self, name: str, value_type: type[V], ttl: str | None = None) -> None:
        super().__init__(name, lambda: ListCodec(name, value_type), ttl)
        self._accept = _acceptor(name, value_type)

    def get(self) -> list[V]:
        """A copy of the current key's list; empty if there is none."""
        return list(self.of_rows.values[self.of_rows.cursor.row] or ())

    def add(self, value: V) -> None:
        """Append to the current key's list."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        values = of_rows.values[row]
        accepted = self._accept(value)
        if values is None:
            of_rows.values[row] = [accepted]
        else:
            of_rows.own(row).append(accepted)

    def update(self, values: Iterable[V]) -> None:
        """Put this list in the place of the current key's."""
        self.of_rows.values[self.of_rows.cursor.row] = [self._accept(v) for v in values] or None

    def clear(self) -> None:
        """Forget the current key's list."""
        self.of_rows.values[self.of_rows.cursor.row] = None


# --- What may be remembered ---


def _acceptor(name: str, value_type: Any) -> Callable[[Any], Any]:
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
