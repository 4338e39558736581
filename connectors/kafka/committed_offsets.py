"""Who reads what a consumer group has committed.

An AdminClient must not: where the broker that it asks is not the group's coordinator, or not yet, librdkafka
2.16 looks for the group of a client that has none, and ends the process with a segmentation fault
(confluentinc/librdkafka#5040). A consumer has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from onceflow.connectors.kafka.options import Isolation, KafkaOptions, Setting


def group_reader(
    options: KafkaOptions,
    group_id: str,
    isolation: Isolation,
    ours: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Consumer:
    """A Consumer whose `committed()` reads this group's offsets. It never subscribes, so it joins no group.
    "read_committed": offsets of a transaction that is not ended are waited for (KIP-447), which times out;
    "read_uncommitted": those before it are the answer. `ours`: further settings. `close` it. Raises
    KafkaException where librdkafka refuses the settings."""
    group: dict[str, Setting] = {
        "group.id": group_id,
        "enable.auto.commit": False,
        "isolation.level": isolation,
    }
    return Consumer(options.consumer({**group, "enable.auto.commit": False, **ours}, defaults))


def ask_for_group(admin: AdminClient, group_id: str, timeout_s: float) -> None:
    """Raises KafkaException if the group's coordinator can't be asked, with the reason: a consumer that is
    not allowed to read a group only gets no answer. An AdminClient may ask for the group itself."""
    admin.describe_consumer_groups([group_id], request_timeout=timeout_s)[group_id].result()
