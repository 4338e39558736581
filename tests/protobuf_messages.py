"""Messages for tests, made of the text of .proto files by protoc."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

INCLUDED = Path(protoc.__file__).parent / "_proto"
"""Where Google's own files are."""


@functools.cache
def descriptor_set(*files: tuple[str, str]) -> bytes:
    """The FileDescriptorSet of files, each with its name and its text, and of what they import."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files:
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_text(text)
        out = Path(folder) / "all.binpb"
        arguments = [f"-I{folder}", f"-I{INCLUDED}", "--include_imports", f"--descriptor_set_out={out}"]
        assert protoc.main(["protoc", *arguments, *(name for name, _ in files)]) == 0
        return out.read_bytes()


def message_class(name: str, *files: tuple[str, str]) -> Any:
    """The class of a message in a pool of its own: as protoc's Python modules have them."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(*files)).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
