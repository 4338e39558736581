"""How objects that have no columns are kept: as bytes, by msgspec or, if the user asks for it, by pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.state.pickled_objects import PickledObjects
from onceflow.runtime.types.hints import type_name

MSGSPEC, PICKLE = "msgspec", "pickle"


@dataclass(frozen=True)
class ObjectCodec:
    """Objects of one type as bytes. `title` is for the manifest: the type, and what may not change in it."""

    name: str
    title: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def object_codec(codec: str, of: Any, state: str) -> ObjectCodec:
    """The codec of this name. Raises GraphError for another name, and for a type that it does not take."""
    if codec == PICKLE:
        pickled = PickledObjects(of)
        return ObjectCodec(PICKLE, type_name(of), pickled.encode, pickled.decode)
    if codec != MSGSPEC:
        raise GraphError(f'state {state!r}: codec={codec!r}: use "columns", "msgspec" or "pickle"')
    try:
        schema = msgspec.json.schema(of)
    except TypeError as error:
        raise GraphError(
            f"state {state!r}: msgspec does not take {type_name(of)} ({_first_line(error)}): make it a "
            'dataclass, or give the state codec="pickle"'
        ) from error
    form = json.dumps(_without_words(schema), sort_keys=True).encode()
    title = f"{type_name(of)} of the form {hashlib.sha256(form).hexdigest()[:12]}"
    return ObjectCodec(MSGSPEC, title, _Packed(of).encode, _Packed(of).decode)


class _Packed:
    """MessagePack. What is written is read once: msgspec checks types only when it reads."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def encode(self, value: Any) -> bytes:
        content = msgspec.msgpack.encode(value)
        self.decode(content)
        return content

    def decode(self, content: bytes) -> Any:
        return msgspec.msgpack.decode(content, type=self._of)


def checked_object(codec: ObjectCodec, of: Any, state: str, value: Any) -> Any:
    """The object, if it is one of the declared class. Raises TypeError at the user's line."""
    if value is None or (isinstance(of, type) and not isinstance(value, of)):
        raise TypeError(f"state {state!r} is declared {type_name(of)} but gets {repr(value)[:80]}")
    return value


def encoded(codec: ObjectCodec, state: str, values: list[Any]) -> list[bytes]:
    """Raises UserFunctionError for one that the codec does not take."""
    try:
        return [codec.encode(value) for value in values]
    except Exception as error:  # whatever a class of the user's raises
        raise UserFunctionError(
            f"state {state!r}: {codec.name} can't keep a value ({_first_line(error)}; found when the "
            "checkpoint was taken): make it what the state declares"
        ) from error


def decoded(codec: ObjectCodec, state: str, values: list[bytes]) -> list[Any]:
    """Raises UserFunctionError for one that the codec can't read."""
    try:
        return [codec.decode(value) for value in values]
    except Exception as error:  # whatever a class of the user's raises
        raise UserFunctionError(
            f"state {state!r}: {codec.name} can't read a value of the checkpoint ({_first_line(error)}): "
            "declare the class with which it was written"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _without_words(schema: Any) -> Any:
    """A JSON schema without what is said of it for people; fields of such a name stay."""
    if isinstance(schema, list):
        return [_without_words(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for name, value in schema.items():
        if name in ("properties", "$defs") and isinstance(value, dict):
            kept[name] = {each: _without_words(of) for each, of in value.items()}
        elif name not in ("description", "title"):
            kept[name] = _without_words(value)
    return kept
