"""A cluster that refuses the source: said at once, with what is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import Fatal

pytestmark = pytest.mark.kafka

PASSWORD = "correct-horse"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="admin" password="x" user_admin="x" user_reader="{PASSWORD}";'
)


@pytest.fixture(scope="module")
def guarded(module_broker: Callable[..., Any]) -> Any:
    """A broker that knows one user, who may do what the tests allow."""
    return module_broker(
        extra_listeners={"GUARDED": "SASL_PLAINTEXT"},
        properties={
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": LOGIN,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )


def source(broker: Any, topic: str, password: str = PASSWORD, **options: Any) -> KafkaSource:
    return KafkaSource(
        bootstrap_servers=broker.address("GUARDED"),
        topics=topic,
        value=Raw(),
        librdkafka={
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "reader",
            "sasl.password": password,
        },
        **options,
    )


def allow(broker: Any, topic: str, operation: AclOperation) -> None:
    acl = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:reader",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.create_acls([acl])[acl].result(30)


def test_a_wrong_password_is_told_from_a_broker_that_is_away_and_never_shown(
    guarded: Any, reading: Any
) -> None:
    described = source(guarded, "topic", password="battery-staple")
    enumerator = described.open_enumerator("job", SystemClock())
    with pytest.raises(Fatal, match=r"[Aa]uthentication") as raised:
        enumerator.initial_splits()
    enumerator.close()
    split = KafkaSplit("topic", "id", 0, 0)
    with pytest.raises(Fatal, match=r"refuse each other") as raised_by_reader:
        reading(described, [split.state()]).until(lambda: False)
    for text in (str(raised.value), str(raised_by_reader.value), repr(described)):
        assert "battery-staple" not in text


def test_each_missing_right_is_named_and_the_group_needs_none(guarded: Any, reading: Any) -> None:
    topic = guarded.create_topic("guarded-input", 1)
    producer = Producer({"bootstrap.servers": guarded.bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"1")
    assert producer.flush(30) == 0
    described = source(guarded, topic)

    enumerator = described.open_enumerator("job", SystemClock())
    with pytest.raises(Fatal, match=f"lacks DESCRIBE on topic '{topic}'"):
        enumerator.initial_splits()
    allow(guarded, topic, AclOperation.DESCRIBE)
    splits = None
    while splits is None:
        try:
            splits = enumerator.initial_splits()
        except Fatal:  # the broker has yet to hear of the new right
            continue
    with pytest.raises(Fatal, match=f"lacks READ on topic '{topic}'"):
        reading(described, splits).until(lambda: False)
    allow(guarded, topic, AclOperation.READ)
    read = None
    while read is None or not read.rows:
        try:
            read = reading(described, splits).to_the_end()
        except Fatal:
            continue
    assert [row["value"] for _, _, row in read.rows] == [b"1"]
    enumerator.close()
