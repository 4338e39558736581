"""Records that the broker would refuse are refused before they are part of a checkpoint."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.errors import Fatal

_RECORD_OVERHEAD_BYTES = 100  # batch header and varints, at most


def refuse_too_large(rows: pa.RecordBatch, limit: int) -> None:
    """Fatal naming the largest of the rows (PRODUCE_SCHEMA) if it is above `limit`, the topic's
    max.message.bytes."""
    if rows.nbytes + _RECORD_OVERHEAD_BYTES <= limit:
        return  # all of them together are small enough for one
    largest_max = longest(rows["value"])
    keys_max = rows["key"].nbytes  # of all of them, mostly little
    is_enough = largest_max + keys_max + _RECORD_OVERHEAD_BYTES <= limit
    largest_max += keys_max if is_enough else longest(rows["key"])
    has_headers = rows["headers"].null_count < rows.num_rows
    if not has_headers and largest_max + _RECORD_OVERHEAD_BYTES <= limit:
        return
    sizes = pc.add(
        pc.fill_null(pc.binary_length(rows["key"]), 0), pc.fill_null(pc.binary_length(rows["value"]), 0)
    )
    if has_headers:
        flat = rows["headers"].nbytes  # no record has more
        sizes = pc.add(sizes, flat) if (pc.max(sizes).as_py() or 0) + flat > limit else sizes
    largest = pc.max(sizes).as_py()
    if largest + _RECORD_OVERHEAD_BYTES > limit:
        row = rows.slice(pc.index(sizes, largest).as_py(), 1).to_pylist()[0]
        raise Fatal(
            f"a record for topic {row['topic']!r} is too large: key {(row['key'] or b'')[:100]!r}, "
            f"{largest} bytes, the topic takes {limit} (max.message.bytes, less {_RECORD_OVERHEAD_BYTES} of "
            "overhead): raise it on the topic, or make the records smaller"
        )


def too_large(topic: str, key: bytes | None, size: int, limit: int | None = None) -> Fatal:
    """What to raise for a record that is refused in a batch of its own, of so many bytes. `limit`: if it is
    known what is not."""
    takes = "less" if limit is None else str(limit)
    return Fatal(
        f"a record for topic {topic!r} is too large: key {(key or b'')[:100]!r}, {size} bytes, the topic "
        f"takes {takes} (its max.message.bytes and segment.bytes, and message.max.bytes in "
        "librdkafka={...}): raise what is too low and start the job again, which writes the record then, or "
        "make the records smaller"
    )


def largest_too_large(rows: pa.RecordBatch, limit: int) -> Fatal:
    """What to raise if not all of the rows (PRODUCE_SCHEMA) are taken: names the largest of them."""
    sizes = pc.add(
        pc.fill_null(pc.binary_length(rows["key"]), 0), pc.fill_null(pc.binary_length(rows["value"]), 0)
    )
    largest = pc.max(sizes).as_py()
    at = pc.index(sizes, largest).as_py()
    return too_large(rows["topic"][at].as_py(), rows["key"][at].as_py(), largest, limit)


def longest(values: pa.LargeBinaryArray) -> int:
    """The bytes of the longest value, or more: what lies under a null counts too."""
    if values.null_count == len(values):
        return 0
    offsets = offsets_of(values)
    return int((offsets[1:] - offsets[:-1]).max())
