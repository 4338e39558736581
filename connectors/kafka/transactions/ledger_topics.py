"""The topics of ledgers: nothing is ever written into them, the offsets live in __consumer_offsets.

They have two partitions: the first is the ledger's, the second for marks that show that a read of it is of
now (`newest_offsets.py`). Those of earlier versions had one, and get the second.
"""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from onceflow.connectors.kafka.produce.route import LOG
from onceflow.runtime.errors import Fatal

PARTITIONS = 2
_ADMIN_S = 10.0
_REQUEST_S = 5.0
_DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED


class LedgerTopics:
    """What one client knows of them, and does for them."""

    def __init__(self) -> None:
        self._with_two: set[str] = set()
        self._refused: set[str] = set()

    def has_two_partitions(self, topic: str, reader: Consumer) -> bool:
        """Raises KafkaException where brokers can't be asked. One that is not there has none."""
        if topic in self._refused:
            return False
        if topic not in self._with_two:
            found = reader.list_topics(topic, timeout=_REQUEST_S).topics[topic]
            if found.error is not None or len(found.partitions) < PARTITIONS:
                return False
            self._with_two.add(topic)
        return True

    def create(self, topic: str, admin: AdminClient) -> None:
        """Create it, unless somebody has. Raises Fatal where an ACL is missing, KafkaException otherwise."""
        new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=-1)
        try:
            admin.create_topics([new], request_timeout=_ADMIN_S)[topic].result()
        except KafkaException as e:
            if e.args[0].code() in _DENIED:
                raise Fatal(
                    f"the ledger topic {topic!r} does not exist, or the user lacks DESCRIBE on it, and the "
                    f"user lacks CREATE on Topic {topic}: have it created ({PARTITIONS} partitions, it stays "
                    "empty) or give ledger_topic= to the sink"
                ) from e
            if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def extend(self, topic: str, admin: AdminClient) -> None:
        """Give it its second partition, unless somebody has. Where that is refused it is said, and ledgers
        are read from whoever answers. Raises KafkaException where brokers can't be asked."""
        try:
            wanted = [NewPartitions(topic, PARTITIONS)]
            admin.create_partitions(wanted, request_timeout=_ADMIN_S)[topic].result()
        except KafkaException as e:
            if e.args[0].retriable() or e.args[0].code() < 0:
                raise
            if e.args[0].code() != KafkaError.INVALID_PARTITIONS and topic not in self._refused:
                self._refused.add(topic)
                _tell_refused(topic, e.args[0].str())


_told: set[str] = set()
_told_lock = threading.Lock()


def _tell_refused(topic: str, why: str) -> None:
    """Once in a process."""
    with _told_lock:
        if topic in _told:
            return
        _told.add(topic)
    LOG.warning(
        "the ledger topic %s has one partition, and a second one is refused (%s). If a broker is frozen for "
        "longer than its session and wakes up in a moment of doubt, output may be written twice: give the "
        "topic 2 partitions, or its user ALTER on it",
        topic,
        why,
    )
