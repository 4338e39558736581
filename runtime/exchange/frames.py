"""Elements as bytes on a connection between two slots.

A frame is a header (kind, length of the meta part, length of the body; little endian) and the two
parts. Records travel as one Arrow IPC record batch message without its schema, which both sides know
from the edge; event times, key hashes, origins and kinds are extra columns behind the user's. No pickle.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import (
    Barrier,
    Element,
    EndOfInput,
    Idle,
    LoopToken,
    Origin,
    Records,
    Watermark,
)

HEADER: Final = struct.Struct("<BxxxIQ")
_WATERMARK: Final = struct.Struct("<q")
_BARRIER: Final = struct.Struct("<q?")
_LOOP_TOKEN: Final = struct.Struct("<q?")
FRAME_BYTES_MAX: Final = 1 << 31
_ALIGNMENT: Final = 64
"""Arrow's buffers should begin at multiples of it."""

RECORDS, WATERMARK, IDLE, BARRIER, END_OF_INPUT, LOOP_TOKEN = range(1, 7)

_EVENT_TIME, _KEY_HASH, _SPLIT, _OFFSET, _KIND = (
    "__event_time",
    "__key_hash",
    "__split",
    "__offset",
    "__kind",
)


class FrameCodec:
    """Encodes and decodes the elements of one edge; the same on both sides.

    The flags say which side arrays every Records of the edge carries.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        has_event_time: bool,
        has_key_hash: bool,
        with_origin: bool,
        has_kinds: bool = False,
    ) -> None:
        self._columns = len(schema)
        self._has_event_time = has_event_time
        self._has_key_hash = has_key_hash
        self._with_origin = with_origin
        self._has_kinds = has_kinds
        fields = [*schema]
        if has_event_time:
            fields.append(pa.field(_EVENT_TIME, pa.int64()))
        if has_key_hash:
            fields.append(pa.field(_KEY_HASH, pa.uint64()))
        if with_origin:
            fields += [pa.field(_SPLIT, pa.uint16()), pa.field(_OFFSET, pa.int64())]
        if has_kinds:
            fields.append(pa.field(_KIND, pa.int8()))
        self._schema = schema
        self._wire_schema = pa.schema(fields)

    def encode(self, element: Element) -> Sequence[bytes | memoryview]:
        """The frame of an element, in parts that are sent one after another."""
        match element:
            case Records():
                return self._encode_records(element)
            case Watermark(time_ms):
                return _small(WATERMARK, _WATERMARK.pack(time_ms))
            case Idle():
                return _small(IDLE, b"")
            case Barrier(checkpoint_id, is_last):
                return _small(BARRIER, _BARRIER.pack(checkpoint_id, is_last))
            case EndOfInput():
                return _small(END_OF_INPUT, b"")
            case LoopToken(loop, number, is_quiet):
                return _small(LOOP_TOKEN, _LOOP_TOKEN.pack(number, is_quiet) + loop.encode())

    def decode(self, kind: int, meta: bytes, body: memoryview) -> Element:
        """The element of a frame; records keep referring to `body` (no copy)."""
        if kind == RECORDS:
            return self._decode_records(meta, body)
        if kind == WATERMARK:
            return Watermark(_WATERMARK.unpack(meta)[0])
        if kind == IDLE:
            return Idle()
        if kind == BARRIER:
            return Barrier(*_BARRIER.unpack(meta))
        if kind == END_OF_INPUT:
            return EndOfInput()
        if kind == LOOP_TOKEN:
            number, is_quiet = _LOOP_TOKEN.unpack_from(meta)
            return LoopToken(meta[_LOOP_TOKEN.size :].decode(), number, is_quiet)
        raise ValueError(f"a frame of unknown kind {kind} arrived: the peer speaks another version")

    def _encode_records(self, records: Records) -> Sequence[bytes | memoryview]:
        columns = records.batch.columns
        meta = b""
        if self._has_event_time:
            assert records.event_time is not None, "the edge declares event time"
            columns.append(pa.array(records.event_time))
        if self._has_key_hash:
            assert records.key_hash is not None, "the edge is keyed"
            columns.append(pa.array(records.key_hash))
        if self._with_origin:
            assert records.origin is not None, "the edge declares origins"
            columns += [pa.array(records.origin.split), pa.array(records.origin.offset)]
            meta = json.dumps(records.origin.splits).encode()
            meta += b" " * (-len(meta) % _ALIGNMENT)  # the body behind it is read in place
        if self._has_kinds:
            kind = np.zeros(len(records), np.int8) if records.kind is None else records.kind
            columns.append(pa.array(kind))
        else:
            assert records.kind is None, "the edge declares that all rows are inserts"
        batch = pa.RecordBatch.from_arrays(columns, schema=self._wire_schema)
        body = memoryview(batch.serialize()).cast("B")
        return (HEADER.pack(RECORDS, len(meta), len(body)) + meta, body)

    def _decode_records(self, meta: bytes, body: memoryview) -> Records:
        wire = pa.ipc.read_record_batch(pa.py_buffer(body), self._wire_schema)
        extra = iter(wire.columns[self._columns :])
        batch = pa.RecordBatch.from_arrays(wire.columns[: self._columns], schema=self._schema)
        event_time = _numpy(next(extra)) if self._has_event_time else None
        key_hash = _numpy(next(extra)) if self._has_key_hash else None
        origin = None
        if self._with_origin:
            origin = Origin(tuple(json.loads(meta)), _numpy(next(extra)), _numpy(next(extra)))
        kind = _numpy(next(extra)) if self._has_kinds else None
        return Records(batch, event_time, key_hash, origin, kind)


def _small(kind: int, meta: bytes) -> tuple[bytes]:
    return (HEADER.pack(kind, len(meta), 0) + meta,)


def _numpy(column: pa.Array) -> Any:
    """A column as a NumPy array, without copying; the dtype is the column's."""
    return column.to_numpy(zero_copy_only=True)
