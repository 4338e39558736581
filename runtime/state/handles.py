"""ValueState, MapState, ListState: what a KeyedProcess remembers for each key.

Declared in the class with a name and a type, so that a savepoint can be read without the code:

    class Alert(KeyedProcess[str, Reading, Fire]):
        last = ValueState("last", float)

Inside process() and on_timer() `self.last` is the value of the current key. Another type than the
declared one is refused at once for str, int, float, bool, bytes, datetime and date; inside lists, dicts
and records it is found at the next checkpoint.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, KeysView, Mapping, ValuesView
from typing import Any, Generic, Self, TypeVar, overload

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.state.accepted_values import acceptor
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.expiring_items import ExpiringList, ExpiringMap
from onceflow.runtime.state.expiring_values import ExpiringValue
from onceflow.runtime.state.kept_objects import CodecName, accepting, kept_values, objects_of
from onceflow.runtime.state.row_values import Cursor, ListCodec, MapCodec
from onceflow.runtime.state.state_names import checked_former_names
from onceflow.runtime.state.ttl import Refresh, Time
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import describe_type

V = TypeVar("V")
K = TypeVar("K")
D = TypeVar("D")


@explained
class ValueState(State, Generic[V]):
    """One value for each key. `former_names`: what the state was called before; it keeps what was kept so.
    `codec="msgspec"` or `"pickle"`: values are kept as bytes, for classes that have no columns.

    `ttl="1 d"`: it is forgotten so long after it was set, by the event time of the record, or with
    `ttl_time="processing"` by the clock. `ttl_refresh="read"`: so long after it was set or read.
    """

    def __init__(
        self,
        name: str,
        value_type: type[V],
        ttl: str | int | None = None,
        ttl_refresh: Refresh = "write",
        ttl_time: Time = "event",
        former_names: Iterable[str] = (),
        codec: CodecName = "columns",
    ) -> None:
        objects = objects_of(name, value_type, codec)
        super().__init__(name, lambda: kept_values(name, value_type, objects), ttl, ttl_refresh, ttl_time)
        self.former_names, self.objects = checked_former_names(name, former_names), objects
        self._accept = accepting(name, value_type, objects)
        self._expiring: ExpiringValue | None = None

    def bind(self, cursor: Cursor) -> Self:
        fresh = super().bind(cursor)
        if self.ttl is not None:
            fresh.of_rows = fresh._expiring = ExpiringValue(self.of_rows.codec, cursor, self.ttl)
        return fresh

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: V | D) -> V | D: ...
    def get(self, default: Any = None) -> Any:
        """The value of the current key, or `default` if it has none, or none any more."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        if self._expiring is not None and not self._expiring.sees(row):
            return default
        value = of_rows.values[row]
        return default if value is None else value

    def set(self, value: V) -> None:
        """Remember this for the current key. None is refused: clear() forgets."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        of_rows.values[row] = self._accept(value)
        if self._expiring is not None:
            self._expiring.written(row)

    def clear(self) -> None:
        """Forget the value of the current key."""
        of_rows = self.of_rows
        of_rows.forget(of_rows.cursor.row)


@explained
class MapState(State, Generic[K, V]):
    """A dictionary for each key; without entries it costs nothing. `codec`: how its values are kept, as of a
    ValueState; keys are columns.

    `ttl="1 d"`: each entry is forgotten so long after it was put, by the event time of the record, or with
    `ttl_time="processing"` by the clock. `ttl_refresh="read"`: so long after it was put or read, by itself or
    among all.
    """

    def __init__(
        self,
        name: str,
        key_type: type[K],
        value_type: type[V],
        ttl: str | int | None = None,
        ttl_refresh: Refresh = "write",
        ttl_time: Time = "event",
        former_names: Iterable[str] = (),
        codec: CodecName = "columns",
    ) -> None:
        if not describe_type(key_type, f"state {name!r}").is_immutable:
            raise GraphError(
                f"state {name!r}: a map's keys can't be {type_name(key_type)}; use str, int or the like"
            )
        objects = objects_of(name, value_type, codec)

        def entries() -> MapCodec:
            return MapCodec(
                name, key_type, value_type, kept_values(name, value_type, objects, nullable=False)
            )

        super().__init__(name, entries, ttl, ttl_refresh, ttl_time)
        self.former_names, self.objects = checked_former_names(name, former_names), objects
        self._accept_key, self._accept = acceptor(name, key_type), accepting(name, value_type, objects)
        self._expiring: ExpiringMap | None = None

    def bind(self, cursor: Cursor) -> Self:
        fresh = super().bind(cursor)
        if self.ttl is not None:
            fresh.of_rows = fresh._expiring = ExpiringMap(self.of_rows.codec, cursor, self.ttl)
        return fresh

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The entry, or `default` if there is none."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        entries = of_rows.values[row]
        if entries is None or (self._expiring is not None and not self._expiring.sees(row, key)):
            return default
        return entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        """Sets an entry of the current key; an earlier value of that entry is replaced."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        key, value = self._accept_key(key), self._accept(value)
        if of_rows.values[row] is None:
            of_rows.values[row] = {}
        of_rows.own(row)[key] = value
        if self._expiring is not None:
            self._expiring.put(row, key)

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Sets several entries of the current key; its other entries stay."""
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: K) -> None:
        """Nothing happens if there is no such entry."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        entries = of_rows.values[row]
        if entries is not None and key in entries:
            if len(entries) == 1:
                of_rows.forget(row)
            else:
                del of_rows.own(row)[key]
                if self._expiring is not None:
                    self._expiring.removed(row, key)

    def clear(self) -> None:
        """Forget all entries of the current key."""
        self.of_rows.forget(self.of_rows.cursor.row)

    def contains(self, key: K) -> bool:
        """Whether the current key has such an entry."""
        return key in self

    def is_empty(self) -> bool:
        """Whether the current key has no entries."""
        return not len(self)

    def keys(self) -> KeysView[K]:
        """The keys of all entries, as a copy: see items()."""
        return self._copy().keys()

    def values(self) -> ValuesView[V]:
        """The values of all entries, as a copy: see items()."""
        return self._copy().values()

    def items(self) -> ItemsView[K, V]:
        """A copy: entries may be put and removed while it is gone through."""
        return self._copy().items()

    def __contains__(self, key: object) -> bool:
        of_rows = self.of_rows
        row = of_rows.cursor.row
        if self._expiring is not None:
            return self._expiring.sees(row, key)
        return key in (of_rows.values[row] or ())

    def __len__(self) -> int:
        of_rows = self.of_rows
        row = of_rows.cursor.row
        return len((of_rows.values[row] if self._expiring is None else self._expiring.alive(row)) or ())

    def __bool__(self) -> bool:
        return True  # a handle, not a container: `if self.seen:` would be a trap

    def _copy(self) -> dict[K, V]:
        of_rows = self.of_rows
        row = of_rows.cursor.row
        return dict(of_rows.values[row] or {}) if self._expiring is None else self._expiring.seen(row)


@explained
class ListState(State, Generic[V]):
    """A list for each key. `codec`: how its elements are kept, as of a ValueState.

    `ttl="1 d"`: each element is forgotten so long after it was added, by the event time of the record, or
    with `ttl_time="processing"` by the clock. `ttl_refresh="read"`: so long after it was added or read.
    """

    def __init__(
        self,
        name: str,
        value_type: type[V],
        ttl: str | int | None = None,
        ttl_refresh: Refresh = "write",
        ttl_time: Time = "event",
        former_names: Iterable[str] = (),
        codec: CodecName = "columns",
    ) -> None:
        objects = objects_of(name, value_type, codec)

        def elements() -> ListCodec:
            return ListCodec(name, value_type, kept_values(name, value_type, objects, nullable=False))

        super().__init__(name, elements, ttl, ttl_refresh, ttl_time)
        self.former_names, self.objects = checked_former_names(name, former_names), objects
        self._accept = accepting(name, value_type, objects)
        self._expiring: ExpiringList | None = None

    def bind(self, cursor: Cursor) -> Self:
        fresh = super().bind(cursor)
        if self.ttl is not None:
            fresh.of_rows = fresh._expiring = ExpiringList(self.of_rows.codec, cursor, self.ttl)
        return fresh

    def get(self) -> list[V]:
        """A copy of the current key's list; empty if there is none."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        return list(of_rows.values[row] or ()) if self._expiring is None else self._expiring.seen(row)

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
        if self._expiring is not None:
            self._expiring.added(row)

    def update(self, values: Iterable[V]) -> None:
        """Put this list in the place of the current key's."""
        of_rows = self.of_rows
        row = of_rows.cursor.row
        of_rows.values[row] = [self._accept(v) for v in values] or None
        if self._expiring is not None:
            self._expiring.replaced(row)

    def clear(self) -> None:
        """Forget the current key's list."""
        self.of_rows.forget(self.of_rows.cursor.row)
