"""Kafka's compression of record batches, undone. By cramjam, since neither the size before compression nor,
for snappy, one format is given."""

from __future__ import annotations

import struct
from typing import Any

import cramjam

from onceflow.connectors.kafka.fetch_protocol import ProtocolError

_XERIAL = b"\x82SNAPPY\x00"
"""Java's clients write snappy in blocks, behind this, two versions, and each block's length."""
_XERIAL_HEADER_BYTES = 16


def decompress(codec: int, compressed: Any) -> Any:
    """`codec`: Kafka's number. Argument and answer are of the buffer protocol. Raises ProtocolError if it
    is not what the codec writes."""
    try:
        match codec:
            case 1:
                return cramjam.gzip.decompress(compressed)
            case 2:
                return _decompress_snappy(compressed)
            case 3:
                return cramjam.lz4.decompress(compressed)
            case 4:
                return cramjam.zstd.decompress(compressed)
    except cramjam.DecompressionError as error:
        raise ProtocolError(f"a batch can't be decompressed: {error}") from error
    raise ProtocolError(f"a batch is compressed by codec {codec}, which is unknown")


def _decompress_snappy(compressed: Any) -> Any:
    blocks = memoryview(compressed)
    if bytes(blocks[: len(_XERIAL)]) != _XERIAL:
        return cramjam.snappy.decompress_raw(compressed)
    whole = bytearray()
    at = _XERIAL_HEADER_BYTES
    while at < len(blocks):
        (length,) = struct.unpack_from(">i", blocks, at)
        at += 4
        whole += memoryview(cramjam.snappy.decompress_raw(blocks[at : at + length]))
        at += length
    return whole
