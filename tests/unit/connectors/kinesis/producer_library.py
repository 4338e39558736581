"""Aggregated records as Amazon's producer library writes them, by Google's library."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tests.protobuf_messages import message_class

_PROTO = """
syntax = "proto2";
message AggregatedRecord {
  repeated string partition_key_table = 1;
  repeated string explicit_hash_key_table = 2;
  repeated Record records = 3;
}
message Tag { required string key = 1; optional string value = 2; }
message Record {
  required uint64 partition_key_index = 1;
  optional uint64 explicit_hash_key_index = 2;
  required bytes data = 3;
  repeated Tag tags = 4;
}
"""
MAGIC = b"\xf3\x89\x9a\xc2"


@functools.cache
def _message() -> Any:
    return message_class("AggregatedRecord", ("aggregated.proto", _PROTO))


def aggregated(records: Sequence[tuple[str, bytes]], hash_keys: Mapping[str, int] | None = None) -> bytes:
    """Records with their partition keys as one; some keys with a hash key of their own."""
    message = _message()()
    keys = sorted({key for key, _ in records})
    message.partition_key_table.extend(keys)
    hashes = {key: str(hash_key) for key, hash_key in (hash_keys or {}).items()}
    message.explicit_hash_key_table.extend(hashes.values())
    for key, data in records:
        record = message.records.add(partition_key_index=keys.index(key), data=data)
        record.tags.add(key="tag", value="v" * 200)
        if key in hashes:
            record.explicit_hash_key_index = [*hashes].index(key)
    packed: bytes = message.SerializeToString()
    return MAGIC + packed + hashlib.md5(packed, usedforsecurity=False).digest()
