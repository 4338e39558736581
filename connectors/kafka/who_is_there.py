"""What librdkafka knows of a cluster's members, and how it learns anew once that may be outdated.

librdkafka sends a question to the leader or the controller that it knows, for as long as the question
lasts, also to one that is dead. It asks anew who is there every five minutes only: a client that knew a
dead broker as the controller gets no answer until then, whoever leads the cluster by now.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

AWAY = (  # who was asked, or who would have to answer
    KafkaError._TRANSPORT,
    KafkaError._DESTROY,  # the cluster told librdkafka that this broker is gone, while it was asked
    KafkaError._RESOLVE,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Codes of an answer that did not come, or came from one who may not give it: another may know better."""


def learn_who_is_there(client: AdminClient, timeout_s: float) -> bool:
    """Ask for the list of topics, which any member may answer, and with which librdkafka learns who leads and
    who controls. False: nobody answered within this time."""
    try:
        client.list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True
