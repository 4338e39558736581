"""Kafka's compression of record batches, done and undone. By cramjam, since neither the size before
compression nor, for snappy, one format is given."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cramjam

from onceflow.connectors.kafka.protocol.wire import ProtocolError

_XERIAL = b"\x82SNAPPY\x00"
"""Java's clients write snappy in blocks, behind this, two versions, and each block's length."""
_XERIAL_HEADER_BYTES = 16
_GZIP_LEVEL, _ZSTD_LEVEL = 6, 3


@dataclass(frozen=True, slots=True)
class Codec:
    """How a producer compresses."""

    number: int
    """Kafka's number of the codec."""
    compress: Callable[[Any], Any]
    """Bytes to bytes, both of the buffer protocol."""


def codec_of(name: str, level: int | None) -> Codec | None:
    """The codec that librdkafka's `compression.type` names, at its `compression.level` or librdkafka's own.
    None: there is none like it here, as for lz4, of which Java's clients read a form that cramjam does not
    write."""
    match name:
        case "gzip":
            return Codec(1, lambda raw: cramjam.gzip.compress(raw, _GZIP_LEVEL if level is None else level))
        case "snappy":
            return Codec(2, cramjam.snappy.compress_raw)
        case "zstd":
            return Codec(4, lambda raw: cramjam.zstd.compress(raw, _ZSTD_LEVEL if level is None else level))
    return None


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
