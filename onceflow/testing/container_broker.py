"""A Kafka in a container for the tests of a job, by testcontainers."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from onceflow.connectors.kafka.embedded.jars import PINNED_VERSION
from onceflow.connectors.kafka.embedded.ports import free_port
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.runtime.errors import UsageError

IMAGE = f"apache/kafka:{PINNED_VERSION}"
"""The version that `onceflow broker start` runs."""
START_TIMEOUT_S = 120.0
_LOG = logging.getLogger(__name__)
_OTHERWISE = "or run the tests with --onceflow-broker=process, which needs Java and no container"


@contextmanager
def container_broker(image: str = IMAGE, properties: Mapping[str, str] | None = None) -> Iterator[str]:
    """The address of a single-node Kafka in a container of its own, which is removed at the end. `image`: one
    that takes settings from KAFKA_* variables, as Apache's own does. `properties`: more of them, by their
    names in Kafka (`broker.session.timeout.ms`).

    Raises UsageError if testcontainers is not installed or no container engine answers.
    """
    container = _container(image, properties or {})
    try:
        try:
            container.start()
            address = f"{container.get_container_host_ip()}:{container.get_exposed_port(_PORT)}"
            _wait_for_answer(address)
        except Exception as error:  # docker's own, requests', testcontainers', librdkafka's
            raise UsageError(
                f"--onceflow-broker=container: {image} could not be started ({error}): see that "
                f"`docker version` and `docker pull {image}` work, {_OTHERWISE}"
            ) from error
        yield address
    finally:
        container.stop()


def _wait_for_answer(address: str) -> None:
    """Raises KafkaException if the broker has not answered in time."""
    admin = AdminClient(KafkaOptions(address).admin({"logger": _LOG}))
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            admin.list_topics(timeout=1)
        except KafkaException:
            if time.monotonic() > deadline_s:
                raise
        else:
            return


_PORT = 9092
"""The port of the clients, in the container."""


def _container(image: str, properties: Mapping[str, str]) -> Any:
    """The container, not started yet. Clients are sent to the address that the broker advertises, so the port
    on this machine has to be known before: a free one is chosen here."""
    try:
        # Not above: optional packages of whoever runs the tests.
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise UsageError(
            f"--onceflow-broker=container needs testcontainers ({error}): pip install "
            f"'onceflow[containers]', {_OTHERWISE}"
        ) from error
    try:
        container = DockerContainer(image)
        engine = container.get_docker_client()
        engine.client.ping()
        host, port = engine.host(), free_port()
    except Exception as error:  # docker's own, requests'
        raise UsageError(
            f"--onceflow-broker=container: no container engine answers ({error}): start one, {_OTHERWISE}"
        ) from error
    settings = {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"HOST://:{_PORT},INSIDE://:19092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"HOST://{host}:{port},INSIDE://localhost:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "HOST:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        # The broker sends itself the markers of transactions, from where HOST's port does not lead to it.
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        # One broker: with the defaults of three replicas there would be no transaction.
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    settings |= {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in properties.items()}
    return container.with_envs(**settings).with_bind_ports(_PORT, port)
