"""How a declared state keeps a value: as columns of its type or, by a codec that it names, as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa

from onceflow.runtime.state.accepted_values import acceptor
from onceflow.runtime.state.object_codecs import ObjectCodec, checked_object, decoded, encoded
from onceflow.runtime.state.object_codecs import object_codec as codec_of
from onceflow.runtime.state.row_values import Codec, ValueCodec

CodecName = Literal["columns", "msgspec", "pickle"]


class ObjectValues:
    """Codec of objects of any class, as bytes. The user's code may change them in place, so they become bytes
    when a barrier comes, and not later."""

    is_immutable = False

    def __init__(self, name: str, objects: ObjectCodec, nullable: bool) -> None:
        self._name = name
        self._objects = objects
        self._bytes = ValueCodec(name, bytes, nullable)
        self.reads = self._bytes.reads
        self.field = self._bytes.field

    def to_arrow(self, values: list[Any]) -> pa.Array:
        there = iter(encoded(self._objects, self._name, [value for value in values if value is not None]))
        return self._bytes.to_arrow([None if value is None else next(there) for value in values])

    def from_arrow(self, column: pa.Array) -> list[Any]:
        contents = self._bytes.from_arrow(column)
        there = iter(decoded(self._objects, self._name, [each for each in contents if each is not None]))
        return [None if each is None else next(there) for each in contents]


def objects_of(name: str, value_type: Any, codec: CodecName) -> ObjectCodec | None:
    """The codec that a state names; None: its values are columns. Raises GraphError."""
    return None if codec == "columns" else codec_of(codec, value_type, name)


def kept_values(name: str, value_type: Any, objects: ObjectCodec | None, nullable: bool = True) -> Codec:
    """How values of a state are kept. Raises GraphError for a type that has no columns."""
    if objects is None:
        return ValueCodec(name, value_type, nullable)
    return ObjectValues(name, objects, nullable)


def accepting(name: str, value_type: Any, objects: ObjectCodec | None) -> Callable[[Any], Any]:
    """A function that returns what is remembered for a value, or raises TypeError at the user's line."""
    if objects is None:
        return acceptor(name, value_type)
    return lambda value: checked_object(objects, value_type, name, value)
