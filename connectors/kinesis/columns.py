"""What is known of a record beside its data, and how columns have it."""

from __future__ import annotations

import pyarrow as pa

COLUMN_TYPES = {
    "partition_key": pa.string(),
    "arrival_time": pa.timestamp("ms", tz="UTC"),
    "shard": pa.string(),
    "sequence_number": pa.string(),
}
"""The type of each, by what it is; a source names those that it has."""
