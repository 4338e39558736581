"""A message type as data that travels to the slots: its full name, and the files that it is described in.

A slot makes a class of its own of these, in a pool of its own: it never needs the module that protoc wrote,
and nothing of the user's process that is called the same gets in its way.
"""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onceflow.connectors.formats.registry.schemas import SchemaReference
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

_WELL_KNOWN = "google/protobuf/"
"""Files that every registry and every runtime has."""


@dataclass(frozen=True, slots=True)
class MessageType:
    """`files`: a FileDescriptorSet, serialized, in which each file comes after those that it imports."""

    name: str
    files: bytes

    def __repr__(self) -> str:
        return self.name

    @property
    def descriptor(self) -> Any:
        return self.message_class.DESCRIPTOR

    @property
    def message_class(self) -> Any:
        """The process's class of these messages."""
        return _class_of(self.name, self.files)

    def schema_text(self) -> str:
        """The file of the message as a registry takes it: its descriptor in base64, as Confluent's clients
        register it."""
        return _text(self.descriptor.file)

    def references(self) -> tuple[SchemaReference, ...]:
        """The files that it imports, but for those that every registry has. As with Confluent's clients the
        subject of each is the name of its file."""
        return _references(self.descriptor.file)

    def index_path(self) -> tuple[int, ...]:
        """Where the message is in its file: its place at the top, then inside of each message around it."""
        path: list[int] = []
        inner = self.descriptor
        while inner.containing_type is not None:
            path.insert(0, _place(inner, inner.containing_type.nested_types))
            inner = inner.containing_type
        return (_place(inner, inner.file.message_types_by_name.values()), *path)


def message_type(given: Any, name: str | None) -> MessageType:
    """The type of a class that protoc has written, or of a file with a FileDescriptorSet (protoc
    --descriptor_set_out --include_imports) and the message's full name. Raises OptionError."""
    protobuf()
    if isinstance(given, MessageType):
        return given
    if isinstance(given, str | Path):
        return _of_file(Path(given), name)
    descriptor = getattr(given, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(descriptor, "fields_by_name") or not isinstance(given, type):
        raise OptionError(
            f"Protobuf({given!r}): give a class that protoc has written, or the path of a descriptor set and "
            'name="shop.Purchase"'
        )
    if name is not None:
        raise OptionError(f"name={name!r} is for a descriptor set; {given.__name__} has a name of its own")
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    _add_file(descriptor.file, files, set())
    return MessageType(descriptor.full_name, files.SerializeToString(deterministic=True))


def protobuf() -> None:
    """Raises OptionError saying how to get the library, if it is not there."""
    try:
        import google.protobuf.message_factory  # noqa: F401
    except ModuleNotFoundError as error:
        raise OptionError(
            "Protobuf needs packages that are not installed: pip install 'onceflow[protobuf]' "
            f"(it lacks {error.name!r})"
        ) from error


def _of_file(path: Path, name: str | None) -> MessageType:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise OptionError(f"the descriptor set {str(path)!r} can't be read: {error}") from error
    known = [full for file in files.file for full in _names(file.message_type, file.package)]
    if name not in known:
        asked = "say which message it is" if name is None else f"there is no message {name!r} in it"
        raise OptionError(
            f"the descriptor set {str(path)!r}: {asked}{nearest(name or '', known)}; there are "
            f"{', '.join(known) or 'none'}"
        )
    made = MessageType(name, files.SerializeToString(deterministic=True))
    try:
        _ = made.message_class
    except (TypeError, KeyError) as error:
        raise OptionError(
            f"the descriptor set {str(path)!r} is not whole: {error}. Write it with protoc --include_imports"
        ) from error
    return made


def _names(messages: Any, package: str) -> list[str]:
    found: list[str] = []
    for message in messages:
        if not message.options.map_entry:
            full = f"{package}.{message.name}" if package else message.name
            found += [full, *_names(message.nested_type, full)]
    return found


def _add_file(file: Any, files: Any, seen: set[str]) -> None:
    if file.name in seen:
        return
    seen.add(file.name)
    for other in file.dependencies:
        _add_file(other, files, seen)
    file.CopyToProto(files.file.add())


@functools.cache
def _class_of(name: str, files: bytes) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(files).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _text(file: Any) -> str:
    return base64.b64encode(bytes(file.serialized_pb)).decode()


def _references(file: Any) -> tuple[SchemaReference, ...]:
    return tuple(
        SchemaReference(other.name, other.name, _text(other), _references(other))
        for other in file.dependencies
        if not other.name.startswith(_WELL_KNOWN)
    )


def _place(message: Any, among: Any) -> int:
    return next(i for i, each in enumerate(among) if each.full_name == message.full_name)
