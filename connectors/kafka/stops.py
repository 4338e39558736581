"""The offsets at which reading ends: the first one of each partition that is not to be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceflow.connectors.kafka.metadata import ClusterMetadata, PartitionKey
from onceflow.connectors.kafka.options import Isolation
from onceflow.connectors.kafka.starts import AtOffsets, AtTime, Latest, Stop
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest


def stop_offsets(
    metadata: ClusterMetadata, keys: Sequence[PartitionKey], stop: Stop, isolation: Isolation
) -> Mapping[PartitionKey, int]:
    """Where reading of these partitions ends. A partition without a record of the time of an AtTime, or a
    later one, ends where it ends now. Raises OptionError if AtOffsets does not name every partition, or names
    an offset that is not there yet: the job would wait for it in silence."""
    match stop:
        case Latest():
            return metadata.offsets(keys, "latest", isolation)
        case AtTime(time_ms):
            ends = metadata.offsets(keys, "latest", isolation)
            found = metadata.offsets(keys, time_ms, isolation)
            return {key: found[key] if found[key] >= 0 else ends[key] for key in keys}
        case AtOffsets(offsets):
            named = {f"{topic}-{partition}": (topic, partition) for topic, partition in keys}
            check_named("until", offsets, named)
            highs = metadata.offsets(keys, "latest", "read_uncommitted")
            for name, key in named.items():
                if offsets[name] > highs[key]:
                    raise OptionError(
                        f"until= wants {name} up to offset {offsets[name]}, but the broker has records up to "
                        f"{highs[key]}: choose another end"
                    )
            return {key: offsets[name] for name, key in named.items()}


def check_named(option: str, offsets: Mapping[str, int], named: Mapping[str, PartitionKey]) -> None:
    """Raises OptionError unless offsets are given for exactly these partitions."""
    missing = sorted(set(named) - set(offsets))
    unknown = sorted(set(offsets) - set(named))
    if missing:
        raise OptionError(f"{option}= names no offset for {', '.join(missing)}: name every partition")
    if unknown:
        near = nearest(unknown[0], named)
        raise OptionError(f"{option}= names {unknown[0]!r}, which is no partition{near}: leave it out")
