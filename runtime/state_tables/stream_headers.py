"""How many values the columns of a table have, from the headers of its record batches alone.

An Arrow stream has a header before each batch: for each field, also inside structs and lists, how many places
it has there and how many of them are null. The rows, which make up nearly all of a file, are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import pyarrow as pa

from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.manifest import TableFile
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError

Path = tuple[str, ...]
"""The names of a field and of those around it, outermost first; what a list holds is called ITEM."""
ITEM = "[]"
_CONTINUED = b"\xff\xff\xff\xff"
_RECORD_BATCH = 3
_MESSAGE_HEADER_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
_BATCH_NODES = 1
"""The numbers of the fields in Arrow's Message.fbs."""


def places_and_nulls(store: CheckpointStore, table: TableFile) -> Mapping[Path, tuple[int, int]]:
    """How many places each field has in this file, and how many are null. Nothing is compared with the
    checksum, only the number of rows with the manifest's. Raises CorruptCheckpointError for a file that is
    gone or no such table, and has no copy that is one."""
    for path in (table.path, copy_path(table.path)):
        try:
            with store.open(path) as file:
                file.seek(table.offset)
                counts, rows = _counted(file, table.offset + table.size)
        except (OSError, pa.ArrowInvalid, ValueError, struct.error, IndexError):
            continue
        if rows == table.rows:
            return counts
    raise CorruptCheckpointError(
        f"{store.describe(table.path)} (table {table.name!r}) is gone or was altered, and has no whole copy: "
        "read another checkpoint"
    )


def field_paths(schema: pa.Schema) -> list[Path]:
    """The fields of a schema in the order in which a header tells of them."""
    return [path for field in schema for path in _paths(field.type, (field.name,))]


def _paths(of: pa.DataType, path: Path) -> Iterator[Path]:
    t = pa.types
    yield path
    if t.is_struct(of):
        for field in of:
            yield from _paths(field.type, (*path, field.name))
    elif t.is_map(of):
        item = (*path, ITEM)
        yield item
        yield from _paths(of.key_type, (*item, "key"))
        yield from _paths(of.item_type, (*item, "value"))
    elif t.is_list(of) or t.is_large_list(of) or t.is_fixed_size_list(of):
        yield from _paths(of.value_type, (*path, ITEM))
    elif t.is_nested(of):
        raise ValueError(f"{of} has fields that are not known here")


def _counted(file: BinaryIO, end: int) -> tuple[dict[Path, tuple[int, int]], int]:
    """The sums over all batches, and how many rows there are."""
    first = _next_header(file, end)
    if first is None:
        raise ValueError("there is no schema")
    paths = field_paths(pa.ipc.read_schema(pa.py_buffer(_CONTINUED + struct.pack("<i", len(first)) + first)))
    sums, rows = [(0, 0)] * len(paths), 0
    while (header := _next_header(file, end)) is not None:
        nodes = _nodes(header, len(paths))
        file.seek(_int64(header, _message(header), _MESSAGE_BODY_LENGTH), 1)
        if nodes:
            rows += nodes[0][0]
            sums = [(a + c, b + d) for (a, b), (c, d) in zip(sums, nodes, strict=True)]
    return dict(zip(paths, sums, strict=True)), rows


def _next_header(file: BinaryIO, end: int) -> bytes | None:
    """The next message without its body, before which the file is left; None: the stream is at its end."""
    prefix = file.read(8)
    if prefix[:4] != _CONTINUED or len(prefix) < 8:
        raise ValueError("this is no message")
    (size,) = struct.unpack("<i", prefix[4:])
    if size == 0:
        return None
    if not 0 < size <= end - file.tell():
        raise ValueError("a message is longer than its file")
    header = file.read(size)
    if len(header) < size:
        raise ValueError("the file is short")
    return header


# --- The little of FlatBuffers that is needed: tables, whose fields are found by a table of offsets --------


def _message(header: bytes) -> int:
    return int(struct.unpack_from("<I", header, 0)[0])


def _place(header: bytes, table: int, field: int) -> int | None:
    """Where a field of a table is; None: it has its default."""
    vtable = table - struct.unpack_from("<i", header, table)[0]
    (size,) = struct.unpack_from("<H", header, vtable)
    if 4 + 2 * field >= size:
        return None
    (offset,) = struct.unpack_from("<H", header, vtable + 4 + 2 * field)
    return table + offset if offset else None


def _int64(header: bytes, table: int, field: int) -> int:
    place = _place(header, table, field)
    return 0 if place is None else int(struct.unpack_from("<q", header, place)[0])


def _nodes(header: bytes, count: int) -> Sequence[tuple[int, int]]:
    """Places and nulls of each field; none of what is no record batch."""
    message = _message(header)
    kind, at = _place(header, message, _MESSAGE_HEADER_TYPE), _place(header, message, _MESSAGE_HEADER)
    if kind is None or at is None or header[kind] != _RECORD_BATCH:
        return ()
    vector = _place(header, at + struct.unpack_from("<I", header, at)[0], _BATCH_NODES)
    if vector is None:
        raise ValueError("a batch has no fields")
    vector += struct.unpack_from("<I", header, vector)[0]
    (found,) = struct.unpack_from("<I", header, vector)
    if found != count:
        raise ValueError(f"a batch has {found} fields, not {count}")
    return [struct.unpack_from("<qq", header, vector + 4 + 16 * n) for n in range(count)]
