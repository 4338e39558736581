"""Records of the Kinesis Producer Library (KPL), which packs several records into one. Pure.

The format (KPL, aggregation-format.md): four bytes of magic, a message of Protobuf with tables of keys and
the records, and the MD5 of the message. What is no such thing is a record as it is.

A packed record may lie in a shard that some of its keys are not of, when the stream was resharded while it
was packed; the producer sends those again to where they belong. So a reader passes them by, as Amazon's does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_MAGIC = b"\xf3\x89\x9a\xc2"
_DIGEST_BYTES = 16
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Part(NamedTuple):
    """A record as its producer made it."""

    data: bytes
    key: str


class HashRange(NamedTuple):
    """The hash keys of a shard, both ends included."""

    first: int
    last: int


def parts(data: bytes, key: str, of_shard: HashRange | None) -> list[Part]:
    """The records that are in a record of Kinesis, those of other shards' keys left out."""
    if not data.startswith(_MAGIC) or len(data) < len(_MAGIC) + _DIGEST_BYTES:
        return [Part(data, key)]
    message, digest = data[len(_MAGIC) : -_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.md5(message, usedforsecurity=False).digest() != digest:
        return [Part(data, key)]
    try:
        return [*_unpacked(message, of_shard)]
    except (IndexError, ValueError):  # no message of this kind, though the digest fits: a record as it is
        return [Part(data, key)]


def _unpacked(message: bytes, of_shard: HashRange | None) -> Iterator[Part]:
    keys: list[str] = []
    hashes: list[int] = []
    records: list[bytes] = []
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            keys.append(value.decode())
        elif field == 2 and isinstance(value, bytes):
            hashes.append(int(value))
        elif field == 3 and isinstance(value, bytes):
            records.append(value)
    for record in records:
        part, at = _part(record, keys, hashes)
        if of_shard is None or of_shard.first <= at <= of_shard.last:
            yield part


def _part(record: bytes, keys: Sequence[str], hashes: Sequence[int]) -> tuple[Part, int]:
    """One of the packed records, and its hash key."""
    key, hash_key, data = "", None, b""
    for field, value in _fields(record):
        if field == 1 and isinstance(value, int):
            key = keys[value]
        elif field == 2 and isinstance(value, int):
            hash_key = hashes[value]
        elif field == 3 and isinstance(value, bytes):
            data = value
    return Part(data, key), hash_of(key) if hash_key is None else hash_key


def hash_of(key: str) -> int:
    """The hash key of a partition key."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest(), "big")


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of Protobuf, with their numbers. Raises IndexError or ValueError if it is
    none."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(kind)
        if at + size > len(message):
            raise IndexError(at)
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
