"""A topic of a broker that stands alone."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka.admin import NewTopic

from onceflow.connectors.kafka.embedded.process import BrokerError, attempts, leads_all, quiet_admin

_TIMEOUT_S = 30.0


def create_topic(servers: str, topic: str, partitions: int, config: Mapping[str, str]) -> str:
    """Create the topic and wait until the broker leads its partitions; returns its name.

    Raises BrokerError if it does not in time, and KafkaException if the topic can't be made.
    """
    admin = quiet_admin(servers)
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config))
    admin.create_topics([new])[topic].result(_TIMEOUT_S)
    for _ in attempts(_TIMEOUT_S):
        found = admin.list_topics(topic, timeout=10).topics[topic].partitions
        has_leaders = len(found) == partitions and all(p.leader >= 0 for p in found.values())
        if has_leaders and leads_all(admin, topic, partitions):
            return topic
    raise BrokerError(
        f"the partitions of {topic} got no leader within {_TIMEOUT_S:.0f} s: see the broker's log"
    )
