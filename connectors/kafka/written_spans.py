"""Which offsets of a sink's topics have the records that were written since some time."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.runtime.clock import SystemClock


def spans_since(
    options: KafkaOptions, topics: Sequence[str], time_ms: int, timeout_ms: int
) -> list[dict[str, str | int]]:
    """For each partition with such records the first offset and the one behind the last. Records are found by
    their timestamps: by the clocks of the slots, or of the brokers where the topic says so. Raises
    OnceflowError."""
    cluster = ClusterMetadata(options, SystemClock(), timeout_ms, "delivery_timeout")
    try:
        keys = [key for topic in cluster.describe(list(topics)).values() for key in topic.keys]
        begins = cluster.offsets(keys, time_ms, "read_uncommitted")
        ends = cluster.offsets(keys, "latest", "read_uncommitted")
    finally:
        cluster.close()
    return [
        {"topic": topic, "partition": partition, "begin": begins[topic, partition], "end": end}
        for (topic, partition), end in sorted(ends.items())
        if 0 <= begins[topic, partition] < end
    ]
