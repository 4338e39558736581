"""The names of the messages of a schema, by where they are in it: which message a value is, its header says
by numbers alone.

A registry gives a schema as the text of a .proto file, or as its descriptor in base64.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onceflow.runtime.errors import OptionError

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_][\w.]*|\S""", re.DOTALL
)
_BEGIN = re.compile(r"[;\s]*(//|/\*|syntax\b|edition\b|package\b|import\b|option\b|message\b|enum\b)")


@dataclass
class _Message:
    name: str
    inner: list[_Message] = field(default_factory=list)
    is_entry: bool = False
    """Whether it is what protoc makes of a map."""


@dataclass(frozen=True)
class MessageNames:
    """The full names of a schema's messages, each with the paths that mean it."""

    by_path: tuple[tuple[tuple[int, ...], str], ...]

    def at(self, path: Sequence[int]) -> frozenset[str]:
        """The messages that a path may mean: none, or one; two where Java's clients, which don't count the
        entries of maps, and others, which do, mean different ones."""
        return frozenset(name for place, name in self.by_path if place == tuple(path))


def message_names(text: str) -> MessageNames:
    """Raises OptionError for a text that is neither a .proto file nor a descriptor."""
    package, messages = _of_text(text) if _BEGIN.match(text) else _of_descriptor(text)
    found = [
        (tuple(path), f"{package}.{name}" if package else name)
        for counts_entries in (True, False)
        for path, name in _paths(messages, counts_entries)
    ]
    return MessageNames(tuple(sorted(set(found))))


def _paths(messages: Sequence[_Message], counts_entries: bool) -> Iterator[tuple[list[int], str]]:
    counted = [m for m in messages if counts_entries or not m.is_entry]
    for i, message in enumerate(counted):
        if message.is_entry:
            continue
        yield [i], message.name
        for path, name in _paths(message.inner, counts_entries):
            yield [i, *path], f"{message.name}.{name}"


def _of_text(text: str) -> tuple[str, list[_Message]]:
    tokens = [t for t in _TOKEN.findall(text) if not t.startswith(("//", "/*"))]
    package = ""
    top = _Message("")
    open_: list[_Message | None] = [top]  # None: a brace of anything else
    for i, token in enumerate(tokens):
        around = open_[-1]
        if token == "package" and len(open_) == 1:
            package = tokens[i + 1]
        elif token == "map" and around is not None and tokens[i + 1 : i + 2] == ["<"]:
            around.inner.append(_Message("", is_entry=True))
        elif token == "{":
            open_.append(_opened(tokens, i, around))
        elif token == "}":
            if len(open_) == 1:
                raise OptionError("this is no .proto file: a brace is closed that was not opened")
            open_.pop()
    if len(open_) > 1:
        raise OptionError("this is no .proto file: a brace is not closed")
    return package, top.inner


def _opened(tokens: Sequence[str], brace: int, around: _Message | None) -> _Message | None:
    """The message that a brace begins. What is inside of a oneof or of an extend belongs to the message
    around; there are no messages inside of others."""
    before = tokens[max(0, brace - 4) : brace]
    if around is None:
        return None
    if len(before) >= 2 and before[-2] == "message":
        made = _Message(before[-1])
    elif len(before) >= 4 and before[-4] == "group":  # group Result = 1 {
        made = _Message(before[-3])
    else:
        return around if len(before) >= 2 and before[-2] == "oneof" else None
    around.inner.append(made)
    return made


def _of_descriptor(text: str) -> tuple[str, list[_Message]]:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError) as error:
        raise OptionError(f"this is no Protobuf schema: it begins with {text[:100]!r}") from error

    def message(of: descriptor_pb2.DescriptorProto) -> _Message:
        return _Message(of.name, [message(inner) for inner in of.nested_type], of.options.map_entry)

    return file.package, [message(each) for each in file.message_type]
