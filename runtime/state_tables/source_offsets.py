"""How far sources were read, as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from onceflow.runtime.contracts import Json, SplitProgress

OFFSETS = "offsets"
SCHEMA = pa.schema(
    [
        ("split", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("position", pa.string()),
        ("max_event_time", pa.int64()),
        ("is_finished", pa.bool_()),
    ]
)


def offsets_of(splits: Sequence[SplitProgress]) -> pa.RecordBatch:
    """A row for each split. `topic`, `partition` and `offset` (the next one) are those of Kafka, and null for
    other sources; `position` is all that the source knows, as JSON."""
    rows = [
        {
            "split": progress.split.split_id,
            "topic": _of_type(progress.split.position.get("topic"), str),
            "partition": _of_type(progress.split.position.get("partition"), int),
            "offset": _of_type(progress.split.position.get("next_offset"), int),
            "position": json.dumps(progress.split.position, sort_keys=True),
            "max_event_time": progress.max_event_time_ms,
            "is_finished": progress.is_finished,
        }
        for progress in splits
    ]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def _of_type(value: Json, of: type) -> Json:
    return value if isinstance(value, of) else None
