"""BroadcastState: a dictionary that all subtasks of an operator have, and how it is kept in checkpoints."""

from __future__ import annotations

import base64
from collections.abc import ItemsView, Iterable
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.state.description import StatePart, type_text
from onceflow.runtime.state.evolution.conversion import converted
from onceflow.runtime.state.kept_objects import CodecName, kept_values, objects_of
from onceflow.runtime.state.object_codecs import PICKLE, checked_object
from onceflow.runtime.state.row_values import MapCodec
from onceflow.runtime.state.state_names import checked_former_names

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class BroadcastState(Generic[K, V]):
    """A dictionary that all subtasks have, declared in a KeyedBroadcastProcess or a BroadcastProcess:
    `rules = BroadcastState("rules", str, Rule)`. Only process_broadcast() writes it.

    `former_names`: what the state was called before. `codec`: how its values are kept, as of a ValueState.
    """

    def __init__(
        self,
        name: str,
        key_type: type[K],
        value_type: type[V],
        former_names: Iterable[str] = (),
        codec: CodecName = "columns",
    ) -> None:
        if not name:
            raise GraphError("a broadcast state needs a name")
        self.name = name
        self.former_names = checked_former_names(name, former_names)
        self._value_type, self.objects = value_type, objects_of(name, value_type, codec)
        kept = kept_values(name, value_type, self.objects, nullable=False)
        self.codec = MapCodec(name, key_type, value_type, kept)
        self._entries: dict[K, V] | None = None
        self._is_open = False

    @property
    def part(self) -> StatePart:
        """What it is, for the manifest."""
        of, codec = ("", "") if self.objects is None else (self.objects.title, self.objects.name)
        kept = type_text(self.codec.field.type)
        return StatePart(self.name, "broadcast", kept, function=of, is_nullable=True, codec=codec)

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The entry, or `default` if there is none."""
        return self._here().get(key, default)

    def items(self) -> ItemsView[K, V]:
        """All entries; what is in them must not be changed."""
        return self._here().items()

    def put(self, key: K, value: V) -> None:
        """Sets an entry; an earlier value of it is replaced. In process_broadcast() only."""
        entries = self._writable()
        if self.objects is not None:
            checked_object(self.objects, self._value_type, self.name, value)
        entries[key] = value

    def remove(self, key: K) -> None:
        """Nothing happens if there is no such entry."""
        self._writable().pop(key, None)

    def clear(self) -> None:
        """Forget all entries."""
        self._writable().clear()

    def __contains__(self, key: object) -> bool:
        return key in self._here()

    def __len__(self) -> int:
        return len(self._here())

    def __bool__(self) -> bool:
        return True  # a handle, not a container: `if self.rules:` would be a trap

    def _here(self) -> dict[K, V]:
        if self._entries is None:
            raise UserFunctionError(f"broadcast state {self.name!r} is there only inside a running job")
        return self._entries

    def _writable(self) -> dict[K, V]:
        entries = self._here()
        if not self._is_open:
            raise UserFunctionError(
                f"broadcast state {self.name!r} is written outside of process_broadcast(): only there do all "
                "subtasks do the same"
            )
        return entries


def declared_broadcast(process: Any, uid: str) -> dict[str, BroadcastState[Any, Any]]:
    """The broadcast states declared in a class, by attribute. Raises GraphError if two have one name."""
    found: dict[str, BroadcastState[Any, Any]] = {}
    for owner in reversed(type(process).__mro__):
        found |= {name: value for name, value in vars(owner).items() if isinstance(value, BroadcastState)}
    names = [state.name for state in found.values()]
    for name in names:
        if names.count(name) > 1:
            raise GraphError(f"operator {uid!r}: two broadcast states are called {name!r}")
    return found


def encoded(state: BroadcastState[Any, Any]) -> str:
    """Its entries as text, for the meta of a snapshot."""
    column = state.codec.to_arrow([dict(state.items())])
    batch = pa.RecordBatch.from_arrays([column], names=["entries"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def are_same(state: BroadcastState[Any, Any], one: str, other: str) -> bool:
    """Whether two subtasks have kept the same entries. Pickles of equal objects may differ, and two objects
    of any class may never be equal: of those only the keys are compared."""
    if one == other:
        return True
    left, right = decoded(state, one), decoded(state, other)
    if state.objects is not None and state.objects.name == PICKLE:
        return left.keys() == right.keys()
    return left == right


def decoded(state: BroadcastState[Any, Any], text: str) -> dict[Any, Any]:
    """The entries that were kept; their types may have changed since as Avro's rules allow."""
    (batch,) = pa.ipc.open_stream(base64.b64decode(text))
    column = converted(batch.column(0), state.codec.reads, f"broadcast state {state.name!r}")
    return dict(state.codec.from_arrow(column)[0] or {})
